/** The verdict matrix of a run, and the details of the open cell. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { CanvasGrid } from "../canvas_grid.js";
import { DECISIONS, NONE } from "../decisions.js";
import { number } from "../format.js";
import { useTopics } from "../hooks.js";
import { CellDetails } from "./cell_details.js";

/** Sides of a cell in CSS pixels. */
const SIDES = [3, 6, 10, 14, 20];
/** Maximum height of the matrix in CSS pixels. */
const TALL = 540;

/** @param {{model: import("../run_model.js").RunModel}} props */
export function Verdicts({ model }) {
  const host = useRef(/** @type {HTMLElement | null} */ (null));
  const said = useRef(/** @type {HTMLElement | null} */ (null));
  const grid = useRef(/** @type {CanvasGrid | null} */ (null));
  const [open, show] = useState(/** @type {{client: string, round: number} | null} */ (null));
  const [chosen, zoom] = useState(0);
  useTopics(model, "rows", "sorted");
  const { table } = model;
  const side = chosen || fitting(table.clients.length, model.status ? model.status.rounds : 0);

  useEffect(() => {
    if (!host.current) return undefined;
    const made = new CanvasGrid(host.current, source(model, show), (text) => {
      if (said.current) said.current.textContent = text;
    });
    grid.current = made;
    let frame = 0;
    const soon = (/** @type {() => void} */ work) => () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(work);
    };
    let columns = table.rounds.length;
    let first = table.rounds[0];
    let order = table.order.join();
    const changed = soon(() => {
      const [now, start] = [table.rounds.length, table.rounds[0]];
      const arranged = table.order.join();
      if (now > columns && start === first && columns && arranged === order) made.appended();
      else made.resize();
      [columns, first, order] = [now, start, arranged];
    });
    model.addEventListener("verdicts", changed);
    model.addEventListener("sorted", changed);
    return () => {
      cancelAnimationFrame(frame);
      model.removeEventListener("verdicts", changed);
      model.removeEventListener("sorted", changed);
      made.close();
    };
  }, [model]);
  useEffect(() => {
    if (grid.current) grid.current.zoom(side);
  }, [side]);

  const high = Math.min(TALL + 20, Math.max(120, table.clients.length * side + 38));
  const none = !table.rounds.length;
  return html`<section class="panel verdicts" aria-labelledby="verdicts">
    <div class="panel-head">
      <h2 id="verdicts">Verdicts <small class="muted">clients by rounds, gravest evidence first</small></h2>
      <div class="actions">
        <button type="button" class="quiet" onClick=${() => model.sort()}>Sort again</button>
        <button type="button" class="quiet" aria-label="Smaller cells" disabled=${side === SIDES[0]} onClick=${() => zoom(SIDES[SIDES.indexOf(side) - 1])}>−</button>
        <button type="button" class="quiet" aria-label="Larger cells" disabled=${side === SIDES[SIDES.length - 1]} onClick=${() => zoom(SIDES[SIDES.indexOf(side) + 1])}>+</button>
      </div>
    </div>
    <ul class="legend" aria-label="Legend">
      ${DECISIONS.slice(0, NONE).map((one) => html`<li key=${one.name} title=${one.title}><i class=${`cell ${one.name}`} aria-hidden="true"></i>${one.name}</li>`)}
    </ul>
    <div class=${open ? "split" : ""}>
      <div>
        ${none && html`<p class="empty">${model.loaded ? "No round has ended yet." : "Loading…"}</p>`}
        <div class="grid" hidden=${none} ref=${host} style=${{ height: `${high}px` }}></div>
        <p class="readout" aria-live="polite" ref=${said}>${" "}</p>
      </div>
      ${open && html`<${CellDetails} model=${model} client=${open.client} round=${open.round} close=${() => show(null)} />`}
    </div>
  </section>`;
}

/**
 * The largest cell side with which all cells are visible, or the smallest with legible names.
 *
 * @param {number} clients
 * @param {number} rounds
 */
function fitting(clients, rounds) {
  if (!clients) return 10;
  const wide = Math.min(1100, innerWidth - 260);
  return SIDES.findLast((side) => side <= 10 || (side * clients <= TALL && side * rounds <= wide)) || 10;
}

/**
 * The matrix in the form that a grid can draw.
 *
 * @param {import("../run_model.js").RunModel} model
 * @param {(cell: {client: string, round: number}) => void} open
 * @returns {import("../canvas_grid.js").Source}
 */
function source(model, open) {
  const { table } = model;
  const style = () => getComputedStyle(document.documentElement);
  const name = (/** @type {number} */ row) => table.clients[table.order[row]];
  return {
    label: `Verdicts of ${model.run}`,
    follows: true,
    rows: () => table.order.length,
    columns: () => table.rounds.length,
    at: (row, column) => {
      const index = table.at(table.order[row], column);
      return index === NONE ? -1 : index;
    },
    palette: () => DECISIONS.map((one) => style().getPropertyValue(`--${one.name}`).trim()),
    mark: (colour) => {
      const { name, mark } = DECISIONS[colour];
      if (!mark) return undefined;
      return (pen, side) => {
        pen.strokeStyle = pen.fillStyle = style().getPropertyValue(`--${name}-mark`).trim();
        mark(pen, side);
      };
    },
    row_name: name,
    column_name: (column) => String(table.rounds[column]),
    describe: (row, column) => {
      const decision = DECISIONS[table.at(table.order[row], column)];
      const score = table.score(table.order[row], column);
      return `${name(row)}, round ${table.rounds[column]}: ${decision.name}${Number.isNaN(score) ? "" : `, score ${number(score)}`}`;
    },
    open: (row, column) => open({ client: name(row), round: table.rounds[column] }),
  };
}
