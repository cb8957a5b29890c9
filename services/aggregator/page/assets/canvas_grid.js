/**
 * A matrix on a canvas. It draws only the visible cells, and redraws only cells that change.
 *
 * The canvas stays in place while the box below it scrolls, so the drawing time depends on the
 * number of visible cells, not on the size of the matrix. A cell's side is a whole number of device
 * pixels.
 */

const AXIS = 20;
const FONT = 11;
/** Smallest side of a cell, in CSS pixels, at which marks are legible. */
const MARKED = 9;
/** Possible steps between the numbers on an axis. */
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500];

/**
 * @typedef {object} Source
 * @property {string} label what the matrix shows, for screen readers
 * @property {() => number} rows
 * @property {() => number} columns
 * @property {(row: number, column: number) => number} at index of the cell's colour
 * @property {() => string[]} palette the colours
 * @property {(colour: number) => ((pen: CanvasRenderingContext2D, side: number) => void) | undefined} [mark]
 * @property {(row: number) => string} row_name
 * @property {(column: number) => string} column_name
 * @property {(row: number, column: number) => string} describe one cell in words
 * @property {(row: number, column: number) => void} open called on Enter or a click
 * @property {boolean} [follows] whether the view follows the last column when columns are added
 */

export class CanvasGrid {
  /**
   * @param {HTMLElement} host
   * @param {Source} source
   * @param {(text: string) => void} tell shows or announces the description of a cell
   */
  constructor(host, source, tell) {
    this.host = host;
    this.source = source;
    this.tell = tell;
    this.canvas = document.createElement("canvas");
    this.space = document.createElement("div");
    this.space.className = "grid-space";
    this.canvas.className = "grid-canvas";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `${source.label}. Arrow keys move, Enter opens a cell.`);
    host.append(this.canvas, this.space);
    const pen = this.canvas.getContext("2d", { alpha: false });
    if (!pen) throw new Error("this browser draws no canvas");
    this.pen = pen;
    /** @type {{row: number, column: number} | null} */
    this.cursor = null;
    this.x0 = 0;
    this.y0 = 0;
    this.side = 14;
    this.gutter = 0;
    /** @type {Map<number, HTMLCanvasElement | null>} */
    this.marks = new Map();
    this.following = source.follows === true;
    this.drawn_columns = 0;
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(host);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => {
      this.colours = this.read_colours();
      this.resize();
    };
    this.dark.addEventListener("change", this.recolour);
    this.colours = this.read_colours();
    host.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.focused());
    this.canvas.addEventListener("blur", () => this.draw());
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.resize();
  }

  close() {
    this.watch.disconnect();
    this.dark.removeEventListener("change", this.recolour);
    this.canvas.remove();
    this.space.remove();
  }

  read_colours() {
    const style = getComputedStyle(this.host);
    const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    return {
      cells: this.source.palette(),
      paper: read("--panel"),
      ink: read("--ink"),
      muted: read("--muted"),
      accent: read("--accent"),
      font: `${FONT}px ${read("--mono")}`,
    };
  }

  /** @param {number} side of a cell, in CSS pixels */
  zoom(side) {
    this.side = side;
    this.resize();
    if (this.cursor) {
      this.reveal();
      this.draw();
    }
  }

  /** Measures the box, and draws everything. */
  resize() {
    const { source, host } = this;
    this.ratio = Math.max(1, devicePixelRatio || 1);
    this.px = Math.max(1, Math.round(this.side * this.ratio));
    this.marks.clear();
    const legible = this.side >= MARKED;
    let longest = 0;
    if (legible) {
      const rows = source.rows();
      for (let row = 0; row < Math.min(rows, 2000); row += 1) longest = Math.max(longest, source.row_name(row).length);
    }
    const most = Math.min(150, host.clientWidth / 3);
    this.gutter = Math.round(this.ratio * (legible ? Math.min(most, longest * FONT * 0.62 + 12) : 4));
    this.axis = Math.round(AXIS * this.ratio);
    this.wide = Math.max(1, Math.floor(host.clientWidth * this.ratio));
    this.high = Math.max(1, Math.floor(host.clientHeight * this.ratio));
    this.canvas.width = this.wide;
    this.canvas.height = this.high;
    this.canvas.style.width = `${this.wide / this.ratio}px`;
    this.canvas.style.height = `${this.high / this.ratio}px`;
    this.stretch();
    if (this.following) this.to_end();
    this.place();
    this.draw();
  }

  /** Sets the size of the scrolled box. */
  stretch() {
    const { px, ratio } = this.measures();
    const wide = this.gutter + this.source.columns() * px;
    const high = this.axis_height() + this.source.rows() * px;
    this.space.style.width = `${Math.ceil(wide / ratio)}px`;
    this.space.style.height = `${Math.ceil(high / ratio) - this.high_css()}px`;
  }

  measures() {
    return { px: /** @type {number} */ (this.px), ratio: /** @type {number} */ (this.ratio) };
  }

  axis_height() {
    return /** @type {number} */ (this.axis);
  }

  high_css() {
    return /** @type {number} */ (this.high) / this.measures().ratio;
  }

  /** The number of whole columns and rows that fit into the view. */
  fitting() {
    const { px } = this.measures();
    return {
      columns: Math.max(1, Math.floor((/** @type {number} */ (this.wide) - this.gutter) / px)),
      rows: Math.max(1, Math.floor((/** @type {number} */ (this.high) - this.axis_height()) / px)),
    };
  }

  to_end() {
    this.host.scrollLeft = this.host.scrollWidth;
  }

  /** Reads the first row and column in view; returns whether they changed. */
  place() {
    const { px, ratio } = this.measures();
    const fit = this.fitting();
    const { columns, rows } = { columns: this.source.columns(), rows: this.source.rows() };
    const atEnd = this.host.scrollLeft + this.host.clientWidth >= this.host.scrollWidth - 1;
    const atFoot = this.host.scrollTop + this.host.clientHeight >= this.host.scrollHeight - 1;
    const last = Math.max(0, columns - fit.columns);
    const lowest = Math.max(0, rows - fit.rows);
    const x = atEnd ? last : Math.min(last, Math.round((this.host.scrollLeft * ratio) / px));
    const y = atFoot ? lowest : Math.min(lowest, Math.round((this.host.scrollTop * ratio) / px));
    const changed = x !== this.x0 || y !== this.y0;
    this.x0 = x;
    this.y0 = y;
    return changed;
  }

  scrolled() {
    if (this.source.follows) {
      this.following = this.host.scrollLeft + this.host.clientWidth >= this.host.scrollWidth - 4;
    }
    if (this.place()) this.draw();
  }

  /** Draws the whole view. */
  draw() {
    const { pen, colours } = this;
    const fit = this.fitting();
    this.drawn_columns = this.source.columns();
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, /** @type {number} */ (this.wide), /** @type {number} */ (this.high));
    this.draw_cells(this.x0, Math.min(this.source.columns(), this.x0 + fit.columns));
    this.draw_axis();
    this.draw_names();
    this.draw_cursor();
  }

  /**
   * Draws the cells of some columns. Neighbouring cells with the same colour are drawn as one
   * rectangle, and the lines between cells are drawn over it.
   *
   * @param {number} from
   * @param {number} to
   */
  draw_cells(from, to) {
    const { pen, source, colours } = this;
    const { px } = this.measures();
    const top = this.axis_height();
    const rows = Math.min(source.rows() - this.y0, this.fitting().rows);
    /** @type {number[][]} positions and heights of rectangles, by colour */
    const runs = colours.cells.map(() => []);
    /** @type {[HTMLCanvasElement, number, number][]} */
    const marks = [];
    for (let column = from; column < to; column += 1) {
      const x = this.gutter + (column - this.x0) * px;
      let start = 0;
      let colour = -1;
      for (let row = 0; row <= rows; row += 1) {
        const next = row < rows ? source.at(this.y0 + row, column) : -1;
        if (next >= 0 && this.side >= MARKED) {
          const mark = this.mark_of(next);
          if (mark) marks.push([mark, x, top + row * px]);
        }
        if (next === colour) continue;
        if (colour >= 0) runs[colour].push(x, top + start * px, (row - start) * px);
        [start, colour] = [row, next];
      }
    }
    runs.forEach((at, colour) => {
      if (!at.length || !colours.cells[colour]) return;
      pen.fillStyle = colours.cells[colour];
      for (let i = 0; i < at.length; i += 3) pen.fillRect(at[i], at[i + 1], px, at[i + 2]);
    });
    if (px >= 6) {
      const left = this.gutter + (from - this.x0) * px;
      pen.fillStyle = colours.paper;
      for (let row = 1; row <= rows; row += 1) pen.fillRect(left, top + row * px - 1, (to - from) * px, 1);
      for (let column = 1; column <= to - from; column += 1) pen.fillRect(left + column * px - 1, top, 1, rows * px);
    }
    for (const [mark, x, y] of marks) pen.drawImage(mark, x, y);
  }

  /**
   * A colour's mark, drawn once and then reused; null if the colour has no mark.
   *
   * @param {number} colour
   */
  mark_of(colour) {
    const known = this.marks.get(colour);
    if (known !== undefined) return known;
    const draw = this.source.mark && this.source.mark(colour);
    const mark = draw ? document.createElement("canvas") : null;
    if (mark && draw) {
      const side = this.measures().px - 1;
      mark.width = mark.height = side;
      const pen = mark.getContext("2d");
      if (pen) draw(pen, side);
    }
    this.marks.set(colour, mark);
    return mark;
  }

  draw_axis() {
    const { pen, colours, source } = this;
    const { px, ratio } = this.measures();
    const end = Math.min(source.columns(), this.x0 + this.fitting().columns);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, /** @type {number} */ (this.wide), this.axis_height());
    pen.fillStyle = colours.muted;
    pen.font = this.scaled_font();
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const last = source.columns() ? source.column_name(source.columns() - 1) : "";
    const room = (last.length * FONT * 0.62 + 10) * ratio;
    const every = STEPS.find((step) => step * px >= room) || 1000;
    for (let column = this.x0; column < end; column += 1) {
      const name = source.column_name(column);
      if (!name || Number(name) % every) continue;
      const half = room / 2;
      const middle = this.gutter + (column - this.x0 + 0.5) * px;
      pen.fillText(name, Math.min(Math.max(middle, half), /** @type {number} */ (this.wide) - half), this.axis_height() / 2);
    }
  }

  scaled_font() {
    return this.colours.font.replace(/^\d+/, String(Math.round(FONT * this.measures().ratio)));
  }

  draw_names() {
    const { pen, colours, source } = this;
    const { px, ratio } = this.measures();
    if (this.side < MARKED) return;
    const bottom = Math.min(source.rows(), this.y0 + this.fitting().rows);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, this.axis_height(), this.gutter, /** @type {number} */ (this.high));
    pen.font = this.scaled_font();
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    const room = Math.floor((this.gutter / ratio - 10) / (FONT * 0.62));
    for (let row = this.y0; row < bottom; row += 1) {
      const name = source.row_name(row);
      pen.fillStyle = this.cursor && this.cursor.row === row ? colours.ink : colours.muted;
      const text = name.length > room ? `${name.slice(0, Math.max(1, room - 1))}…` : name;
      pen.fillText(text, 2 * ratio, this.axis_height() + (row - this.y0 + 0.5) * px);
    }
  }

  draw_cursor() {
    if (!this.cursor) return;
    const { pen, colours } = this;
    const { px, ratio } = this.measures();
    const { row, column } = this.cursor;
    const x = this.gutter + (column - this.x0) * px;
    const y = this.axis_height() + (row - this.y0) * px;
    if (x < this.gutter || y < this.axis_height()) return;
    pen.lineWidth = Math.max(2, Math.round(2 * ratio));
    pen.strokeStyle = document.activeElement === this.canvas ? colours.accent : colours.ink;
    pen.strokeRect(x - 0.5, y - 0.5, px, px);
  }

  /** Draws the columns that were added at the end, or all cells if the view moves or has a cursor. */
  appended() {
    const before = this.drawn_columns;
    const after = this.source.columns();
    this.stretch();
    if (this.following) this.to_end();
    if (this.place() || this.cursor || after < before) {
      this.draw();
      return;
    }
    this.drawn_columns = after;
    this.draw_cells(Math.max(this.x0, before), Math.min(after, this.x0 + this.fitting().columns));
    this.draw_axis();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.source.rows() || !this.source.columns() || event.altKey || event.ctrlKey || event.metaKey) return;
    const cursor = this.cursor || { row: this.y0, column: Math.min(this.source.columns(), this.x0 + this.fitting().columns) - 1 };
    const fit = this.fitting();
    /** @type {Record<string, [number, number]>} */
    const moves = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      PageUp: [-fit.rows, 0],
      PageDown: [fit.rows, 0],
      Home: [0, -1e9],
      End: [0, 1e9],
    };
    if (event.key === "Enter" || event.key === " ") {
      this.source.open(cursor.row, cursor.column);
    } else if (moves[event.key]) {
      const [down, right] = moves[event.key];
      this.select(cursor.row + down, cursor.column + right);
    } else {
      return;
    }
    event.preventDefault();
  }

  focused() {
    if (!this.source.rows() || !this.source.columns()) return;
    if (this.cursor) this.draw();
    else if (this.canvas.matches(":focus-visible")) this.select(this.y0, Math.min(this.source.columns(), this.x0 + this.fitting().columns) - 1);
  }

  /**
   * Moves the cursor, brings it into view, and describes its cell.
   *
   * @param {number} row
   * @param {number} column
   */
  select(row, column) {
    row = Math.max(0, Math.min(this.source.rows() - 1, row));
    column = Math.max(0, Math.min(this.source.columns() - 1, column));
    this.cursor = { row, column };
    this.reveal();
    this.draw();
    this.tell(this.source.describe(row, column));
  }

  /** Scrolls just enough to show the cursor. */
  reveal() {
    const { row, column } = this.cursor || { row: 0, column: 0 };
    const { px, ratio } = this.measures();
    const fit = this.fitting();
    const x = Math.max(column - fit.columns + 1, Math.min(this.x0, column));
    const y = Math.max(row - fit.rows + 1, Math.min(this.y0, row));
    if (x !== this.x0) this.host.scrollLeft = (x * px) / ratio;
    if (y !== this.y0) this.host.scrollTop = (y * px) / ratio;
    this.x0 = x;
    this.y0 = y;
  }

  /**
   * The cell below the pointer.
   *
   * @param {MouseEvent} event
   */
  cell(event) {
    const { px, ratio } = this.measures();
    const x = event.offsetX * ratio - this.gutter;
    const y = event.offsetY * ratio - this.axis_height();
    const column = this.x0 + Math.floor(x / px);
    const row = this.y0 + Math.floor(y / px);
    if (y < 0 || row >= this.source.rows() || column >= this.source.columns()) return null;
    return { row, column: x < 0 ? -1 : column };
  }

  /** @param {MouseEvent} event */
  click(event) {
    const found = this.cell(event);
    if (!found) return;
    const column = found.column < 0 ? this.source.columns() - 1 : found.column;
    this.select(found.row, column);
    this.source.open(found.row, column);
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const found = this.cell(event);
    if (found && found.column >= 0) this.tell(this.source.describe(found.row, found.column));
  }
}
