/**
 * A matrix on a canvas. It draws only visible cells. If columns are added, it draws only the new columns.
 *
 * The canvas is as large as the view, and stays in place while the box below it scrolls. The drawing time therefore
 * depends on the number of visible cells, not on the size of the matrix. A cell's side is a whole number of device
 * pixels.
 */

/** Sizes in CSS pixels. Sizes whose names start with `device` are in device pixels. */
const AXIS_HEIGHT_PX = 20;
const FONT_SIZE_PX = 11;
/** Smallest side of a cell, in CSS pixels, at which marks and names are legible. */
const MIN_LEGIBLE_CELL_PX = 9;
/** Possible steps between the numbers on an axis. */
const AXIS_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500];

/**
 * @typedef {object} GridSource
 * @property {string} label what the matrix shows, for screen readers
 * @property {() => number} row_count
 * @property {() => number} column_count
 * @property {(row: number, column: number) => number} colour_at index of the cell's colour in the palette; -1 for an empty cell
 * @property {() => string[]} palette the colours
 * @property {(colour: number) => ((context: CanvasRenderingContext2D, side: number) => void) | undefined} [mark_drawer] returns a function that draws a colour's mark
 * @property {(row: number) => string} row_name
 * @property {(column: number) => string} column_name
 * @property {(row: number, column: number) => string} describe_cell one cell in words
 * @property {(row: number, column: number) => void} open_cell called on Enter or a click
 * @property {boolean} [follows_last_column] whether the view scrolls to new columns if it shows the last column
 */

export class CanvasGrid {
  /**
   * @param {HTMLElement} container
   * @param {GridSource} source
   * @param {(text: string) => void} show_description shows or announces the description of a cell
   */
  constructor(container, source, show_description) {
    this.container = container;
    this.source = source;
    this.show_description = show_description;
    this.canvas = document.createElement("canvas");
    this.scroll_spacer = document.createElement("div");
    this.scroll_spacer.className = "grid-space";
    this.canvas.className = "grid-canvas";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `${source.label}. The arrow keys select a cell, and Enter opens it.`);
    container.append(this.canvas, this.scroll_spacer);
    const context = this.canvas.getContext("2d", { alpha: false });
    if (!context) throw new Error("this browser cannot draw on a canvas");
    this.context = context;
    /** @type {{row: number, column: number} | null} */
    this.selected_cell = null;
    this.first_column = 0;
    this.first_row = 0;
    this.cell_size = 14;
    this.gutter_width = 0;
    /** @type {Map<number, HTMLCanvasElement | null>} */
    this.mark_cache = new Map();
    this.is_following = source.follows_last_column === true;
    this.drawn_column_count = 0;
    this.resize_observer = new ResizeObserver(() => this.resize());
    this.resize_observer.observe(container);
    this.dark_scheme_query = matchMedia("(prefers-color-scheme: dark)");
    this.update_colours = () => {
      this.colours = this.read_colours();
      this.resize();
    };
    this.dark_scheme_query.addEventListener("change", this.update_colours);
    this.colours = this.read_colours();
    container.addEventListener("scroll", () => this.handle_scroll(), { passive: true });
    this.canvas.addEventListener("keydown", (event) => this.handle_key(event));
    this.canvas.addEventListener("focus", () => this.handle_focus());
    this.canvas.addEventListener("blur", () => this.draw());
    this.canvas.addEventListener("click", (event) => this.handle_click(event));
    this.canvas.addEventListener("pointermove", (event) => this.handle_pointer_move(event));
    this.resize();
  }

  close() {
    this.resize_observer.disconnect();
    this.dark_scheme_query.removeEventListener("change", this.update_colours);
    this.canvas.remove();
    this.scroll_spacer.remove();
  }

  read_colours() {
    const computed_style = getComputedStyle(this.container);
    const read_property = (/** @type {string} */ name) => computed_style.getPropertyValue(name).trim();
    return {
      cells: this.source.palette(),
      background: read_property("--panel"),
      text: read_property("--ink"),
      muted: read_property("--muted"),
      accent: read_property("--accent"),
      font: `${FONT_SIZE_PX}px ${read_property("--mono")}`,
    };
  }

  /** @param {number} cell_size the side of a cell in CSS pixels */
  set_cell_size(cell_size) {
    this.cell_size = cell_size;
    this.resize();
    if (this.selected_cell) {
      this.scroll_to_selected_cell();
      this.draw();
    }
  }

  /** Measures the container, and draws everything. */
  resize() {
    const { source, container } = this;
    this.pixel_ratio = Math.max(1, devicePixelRatio || 1);
    this.device_cell_size = Math.max(1, Math.round(this.cell_size * this.pixel_ratio));
    this.mark_cache.clear();
    const names_are_legible = this.cell_size >= MIN_LEGIBLE_CELL_PX;
    let longest_name_length = 0;
    if (names_are_legible) {
      const row_count = source.row_count();
      for (let row = 0; row < Math.min(row_count, 2000); row += 1) longest_name_length = Math.max(longest_name_length, source.row_name(row).length);
    }
    const max_gutter_width = Math.min(150, container.clientWidth / 3);
    this.gutter_width = Math.round(this.pixel_ratio * (names_are_legible ? Math.min(max_gutter_width, longest_name_length * FONT_SIZE_PX * 0.62 + 12) : 4));
    this.device_axis_height = Math.round(AXIS_HEIGHT_PX * this.pixel_ratio);
    this.device_width = Math.max(1, Math.floor(container.clientWidth * this.pixel_ratio));
    this.device_height = Math.max(1, Math.floor(container.clientHeight * this.pixel_ratio));
    this.canvas.width = this.device_width;
    this.canvas.height = this.device_height;
    this.canvas.style.width = `${this.device_width / this.pixel_ratio}px`;
    this.canvas.style.height = `${this.device_height / this.pixel_ratio}px`;
    this.resize_spacer();
    if (this.is_following) this.scroll_to_end();
    this.update_view_origin();
    this.draw();
  }

  /** Sets the spacer's size, which determines the size of the area that scrolls. */
  resize_spacer() {
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    const content_width = this.gutter_width + this.source.column_count() * device_cell_size;
    const content_height = this.axis_height() + this.source.row_count() * device_cell_size;
    this.scroll_spacer.style.width = `${Math.ceil(content_width / pixel_ratio)}px`;
    this.scroll_spacer.style.height = `${Math.ceil(content_height / pixel_ratio) - this.css_height()}px`;
  }

  device_metrics() {
    return { device_cell_size: /** @type {number} */ (this.device_cell_size), pixel_ratio: /** @type {number} */ (this.pixel_ratio) };
  }

  axis_height() {
    return /** @type {number} */ (this.device_axis_height);
  }

  css_height() {
    return /** @type {number} */ (this.device_height) / this.device_metrics().pixel_ratio;
  }

  /** The number of whole columns and rows that fit into the view. */
  view_capacity() {
    const { device_cell_size } = this.device_metrics();
    return {
      columns: Math.max(1, Math.floor((/** @type {number} */ (this.device_width) - this.gutter_width) / device_cell_size)),
      rows: Math.max(1, Math.floor((/** @type {number} */ (this.device_height) - this.axis_height()) / device_cell_size)),
    };
  }

  scroll_to_end() {
    this.container.scrollLeft = this.container.scrollWidth;
  }

  /** Computes the first visible row and column from the scroll position; returns whether they changed. */
  update_view_origin() {
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    const capacity = this.view_capacity();
    const { column_count, row_count } = { column_count: this.source.column_count(), row_count: this.source.row_count() };
    const is_at_right_edge = this.container.scrollLeft + this.container.clientWidth >= this.container.scrollWidth - 1;
    const is_at_bottom_edge = this.container.scrollTop + this.container.clientHeight >= this.container.scrollHeight - 1;
    const max_first_column = Math.max(0, column_count - capacity.columns);
    const max_first_row = Math.max(0, row_count - capacity.rows);
    const first_column = is_at_right_edge ? max_first_column : Math.min(max_first_column, Math.round((this.container.scrollLeft * pixel_ratio) / device_cell_size));
    const first_row = is_at_bottom_edge ? max_first_row : Math.min(max_first_row, Math.round((this.container.scrollTop * pixel_ratio) / device_cell_size));
    const changed = first_column !== this.first_column || first_row !== this.first_row;
    this.first_column = first_column;
    this.first_row = first_row;
    return changed;
  }

  handle_scroll() {
    if (this.source.follows_last_column) {
      this.is_following = this.container.scrollLeft + this.container.clientWidth >= this.container.scrollWidth - 4;
    }
    if (this.update_view_origin()) this.draw();
  }

  /** Draws the whole view. */
  draw() {
    const { context, colours } = this;
    const capacity = this.view_capacity();
    this.drawn_column_count = this.source.column_count();
    context.fillStyle = colours.background;
    context.fillRect(0, 0, /** @type {number} */ (this.device_width), /** @type {number} */ (this.device_height));
    this.draw_cells(this.first_column, Math.min(this.source.column_count(), this.first_column + capacity.columns));
    this.draw_axis();
    this.draw_names();
    this.draw_selection();
  }

  /**
   * Draws the columns from `start_column` up to, but not including, `end_column`. Adjacent cells in a
   * column are drawn as one rectangle if they have the same colour. Lines between the cells are drawn over the
   * rectangles.
   *
   * @param {number} start_column
   * @param {number} end_column
   */
  draw_cells(start_column, end_column) {
    const { context, source, colours } = this;
    const { device_cell_size } = this.device_metrics();
    const top = this.axis_height();
    const visible_rows = Math.min(source.row_count() - this.first_row, this.view_capacity().rows);
    /** @type {number[][]} x, y and height of each rectangle, by colour */
    const rectangles = colours.cells.map(() => []);
    /** @type {[HTMLCanvasElement, number, number][]} */
    const marks = [];
    for (let column = start_column; column < end_column; column += 1) {
      const x = this.gutter_width + (column - this.first_column) * device_cell_size;
      let run_start = 0;
      let colour = -1;
      for (let row = 0; row <= visible_rows; row += 1) {
        const next_colour = row < visible_rows ? source.colour_at(this.first_row + row, column) : -1;
        if (next_colour >= 0 && this.cell_size >= MIN_LEGIBLE_CELL_PX) {
          const mark = this.get_mark(next_colour);
          if (mark) marks.push([mark, x, top + row * device_cell_size]);
        }
        if (next_colour === colour) continue;
        if (colour >= 0) rectangles[colour].push(x, top + run_start * device_cell_size, (row - run_start) * device_cell_size);
        [run_start, colour] = [row, next_colour];
      }
    }
    rectangles.forEach((coordinates, colour) => {
      if (!coordinates.length || !colours.cells[colour]) return;
      context.fillStyle = colours.cells[colour];
      for (let i = 0; i < coordinates.length; i += 3) context.fillRect(coordinates[i], coordinates[i + 1], device_cell_size, coordinates[i + 2]);
    });
    if (device_cell_size >= 6) {
      const left = this.gutter_width + (start_column - this.first_column) * device_cell_size;
      context.fillStyle = colours.background;
      for (let row = 1; row <= visible_rows; row += 1) context.fillRect(left, top + row * device_cell_size - 1, (end_column - start_column) * device_cell_size, 1);
      for (let column = 1; column <= end_column - start_column; column += 1) context.fillRect(left + column * device_cell_size - 1, top, 1, visible_rows * device_cell_size);
    }
    for (const [mark, x, y] of marks) context.drawImage(mark, x, y);
  }

  /**
   * A colour's mark, drawn once and then reused; null if the colour has no mark.
   *
   * @param {number} colour
   */
  get_mark(colour) {
    const cached_mark = this.mark_cache.get(colour);
    if (cached_mark !== undefined) return cached_mark;
    const draw_mark = this.source.mark_drawer && this.source.mark_drawer(colour);
    const mark = draw_mark ? document.createElement("canvas") : null;
    if (mark && draw_mark) {
      const mark_size = this.device_metrics().device_cell_size - 1;
      mark.width = mark.height = mark_size;
      const context = mark.getContext("2d");
      if (context) draw_mark(context, mark_size);
    }
    this.mark_cache.set(colour, mark);
    return mark;
  }

  draw_axis() {
    const { context, colours, source } = this;
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    const end_column = Math.min(source.column_count(), this.first_column + this.view_capacity().columns);
    context.fillStyle = colours.background;
    context.fillRect(0, 0, /** @type {number} */ (this.device_width), this.axis_height());
    context.fillStyle = colours.muted;
    context.font = this.scaled_font();
    context.textAlign = "center";
    context.textBaseline = "middle";
    const last_name = source.column_count() ? source.column_name(source.column_count() - 1) : "";
    const label_width = (last_name.length * FONT_SIZE_PX * 0.62 + 10) * pixel_ratio;
    const label_step = AXIS_STEPS.find((step) => step * device_cell_size >= label_width) || 1000;
    for (let column = this.first_column; column < end_column; column += 1) {
      const name = source.column_name(column);
      if (!name || Number(name) % label_step) continue;
      const half_label_width = label_width / 2;
      const label_centre = this.gutter_width + (column - this.first_column + 0.5) * device_cell_size;
      context.fillText(name, Math.min(Math.max(label_centre, half_label_width), /** @type {number} */ (this.device_width) - half_label_width), this.axis_height() / 2);
    }
  }

  scaled_font() {
    return this.colours.font.replace(/^\d+/, String(Math.round(FONT_SIZE_PX * this.device_metrics().pixel_ratio)));
  }

  draw_names() {
    const { context, colours, source } = this;
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    if (this.cell_size < MIN_LEGIBLE_CELL_PX) return;
    const end_row = Math.min(source.row_count(), this.first_row + this.view_capacity().rows);
    context.fillStyle = colours.background;
    context.fillRect(0, this.axis_height(), this.gutter_width, /** @type {number} */ (this.device_height));
    context.font = this.scaled_font();
    context.textAlign = "left";
    context.textBaseline = "middle";
    const max_characters = Math.floor((this.gutter_width / pixel_ratio - 10) / (FONT_SIZE_PX * 0.62));
    for (let row = this.first_row; row < end_row; row += 1) {
      const name = source.row_name(row);
      context.fillStyle = this.selected_cell && this.selected_cell.row === row ? colours.text : colours.muted;
      const text = name.length > max_characters ? `${name.slice(0, Math.max(1, max_characters - 1))}…` : name;
      context.fillText(text, 2 * pixel_ratio, this.axis_height() + (row - this.first_row + 0.5) * device_cell_size);
    }
  }

  draw_selection() {
    if (!this.selected_cell) return;
    const { context, colours } = this;
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    const { row, column } = this.selected_cell;
    const x = this.gutter_width + (column - this.first_column) * device_cell_size;
    const y = this.axis_height() + (row - this.first_row) * device_cell_size;
    if (x < this.gutter_width || y < this.axis_height()) return;
    context.lineWidth = Math.max(2, Math.round(2 * pixel_ratio));
    context.strokeStyle = document.activeElement === this.canvas ? colours.accent : colours.text;
    context.strokeRect(x - 0.5, y - 0.5, device_cell_size, device_cell_size);
  }

  /** Draws the columns that were added at the end; draws all cells if the view moves or a cell is selected. */
  draw_appended_columns() {
    const old_column_count = this.drawn_column_count;
    const new_column_count = this.source.column_count();
    this.resize_spacer();
    if (this.is_following) this.scroll_to_end();
    if (this.update_view_origin() || this.selected_cell || new_column_count < old_column_count) {
      this.draw();
      return;
    }
    this.drawn_column_count = new_column_count;
    this.draw_cells(Math.max(this.first_column, old_column_count), Math.min(new_column_count, this.first_column + this.view_capacity().columns));
    this.draw_axis();
  }

  /** @param {KeyboardEvent} event */
  handle_key(event) {
    if (!this.source.row_count() || !this.source.column_count() || event.altKey || event.ctrlKey || event.metaKey) return;
    const cell = this.selected_cell || { row: this.first_row, column: Math.min(this.source.column_count(), this.first_column + this.view_capacity().columns) - 1 };
    const capacity = this.view_capacity();
    /** @type {Record<string, [number, number]>} */
    const moves_by_key = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      PageUp: [-capacity.rows, 0],
      PageDown: [capacity.rows, 0],
      Home: [0, -1e9],
      End: [0, 1e9],
    };
    if (event.key === "Enter" || event.key === " ") {
      this.source.open_cell(cell.row, cell.column);
    } else if (moves_by_key[event.key]) {
      const [row_offset, column_offset] = moves_by_key[event.key];
      this.select_cell(cell.row + row_offset, cell.column + column_offset);
    } else {
      return;
    }
    event.preventDefault();
  }

  handle_focus() {
    if (!this.source.row_count() || !this.source.column_count()) return;
    if (this.selected_cell) this.draw();
    else if (this.canvas.matches(":focus-visible")) this.select_cell(this.first_row, Math.min(this.source.column_count(), this.first_column + this.view_capacity().columns) - 1);
  }

  /**
   * Selects a cell, scrolls to it, and shows its description.
   *
   * @param {number} row
   * @param {number} column
   */
  select_cell(row, column) {
    row = Math.max(0, Math.min(this.source.row_count() - 1, row));
    column = Math.max(0, Math.min(this.source.column_count() - 1, column));
    this.selected_cell = { row, column };
    this.scroll_to_selected_cell();
    this.draw();
    this.show_description(this.source.describe_cell(row, column));
  }

  /** Scrolls just enough to show the selected cell. */
  scroll_to_selected_cell() {
    const { row, column } = this.selected_cell || { row: 0, column: 0 };
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    const capacity = this.view_capacity();
    const first_column = Math.max(column - capacity.columns + 1, Math.min(this.first_column, column));
    const first_row = Math.max(row - capacity.rows + 1, Math.min(this.first_row, row));
    if (first_column !== this.first_column) this.container.scrollLeft = (first_column * device_cell_size) / pixel_ratio;
    if (first_row !== this.first_row) this.container.scrollTop = (first_row * device_cell_size) / pixel_ratio;
    this.first_column = first_column;
    this.first_row = first_row;
  }

  /**
   * The cell below the pointer; column -1 is the row's name.
   *
   * @param {MouseEvent} event
   */
  cell_at(event) {
    const { device_cell_size, pixel_ratio } = this.device_metrics();
    const x = event.offsetX * pixel_ratio - this.gutter_width;
    const y = event.offsetY * pixel_ratio - this.axis_height();
    const column = this.first_column + Math.floor(x / device_cell_size);
    const row = this.first_row + Math.floor(y / device_cell_size);
    if (y < 0 || row >= this.source.row_count() || column >= this.source.column_count()) return null;
    return { row, column: x < 0 ? -1 : column };
  }

  /** @param {MouseEvent} event */
  handle_click(event) {
    const cell = this.cell_at(event);
    if (!cell) return;
    const column = cell.column < 0 ? this.source.column_count() - 1 : cell.column;
    this.select_cell(cell.row, column);
    this.source.open_cell(cell.row, column);
  }

  /** @param {PointerEvent} event */
  handle_pointer_move(event) {
    const cell = this.cell_at(event);
    if (cell && cell.column >= 0) this.show_description(this.source.describe_cell(cell.row, cell.column));
  }
}
