/** The verdict matrix of a run, and the details of the open cell. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { CanvasGrid } from "../canvas_grid.js";
import { DECISIONS, NONE } from "../decisions.js";
import { format_number } from "../format.js";
import { useStoreTopics } from "../hooks.js";
import { CellDetails } from "./cell_details.js";

/** Possible side lengths of a cell. */
const CELL_SIZES_PX = [3, 6, 10, 14, 20];
/** Maximum height of the matrix. */
const MAX_HEIGHT_PX = 540;

/** @param {{store: import("../run_store.js").RunStore}} props */
export function VerdictMatrix({ store }) {
  const container = useRef(/** @type {HTMLElement | null} */ (null));
  const readout = useRef(/** @type {HTMLElement | null} */ (null));
  const grid = useRef(/** @type {CanvasGrid | null} */ (null));
  const [open_cell, set_open_cell] = useState(/** @type {{client_id: string, round: number} | null} */ (null));
  const [chosen_size, set_chosen_size] = useState(0);
  useStoreTopics(store, "clients", "row_order");
  const { verdict_table } = store;
  const cell_size = chosen_size || default_cell_size(verdict_table.clients.length, store.round_status ? store.round_status.rounds : 0);

  useEffect(() => {
    if (!container.current) return undefined;
    const new_grid = new CanvasGrid(container.current, grid_source(store, set_open_cell), (text) => {
      if (readout.current) readout.current.textContent = text;
    });
    grid.current = new_grid;
    let frame_id = 0;
    const on_next_frame = (/** @type {() => void} */ callback) => () => {
      cancelAnimationFrame(frame_id);
      frame_id = requestAnimationFrame(callback);
    };
    let drawn_column_count = verdict_table.rounds.length;
    let drawn_first_round = verdict_table.rounds[0];
    let drawn_order = verdict_table.row_order.join();
    const update_grid = on_next_frame(() => {
      const [column_count, first_round] = [verdict_table.rounds.length, verdict_table.rounds[0]];
      const order = verdict_table.row_order.join();
      if (column_count > drawn_column_count && first_round === drawn_first_round && drawn_column_count && order === drawn_order) new_grid.draw_appended_columns();
      else new_grid.resize();
      [drawn_column_count, drawn_first_round, drawn_order] = [column_count, first_round, order];
    });
    store.addEventListener("verdicts", update_grid);
    store.addEventListener("row_order", update_grid);
    return () => {
      cancelAnimationFrame(frame_id);
      store.removeEventListener("verdicts", update_grid);
      store.removeEventListener("row_order", update_grid);
      new_grid.close();
    };
  }, [store]);
  useEffect(() => {
    if (grid.current) grid.current.set_cell_size(cell_size);
  }, [cell_size]);

  const height = Math.min(MAX_HEIGHT_PX + 20, Math.max(120, verdict_table.clients.length * cell_size + 38));
  const is_empty = !verdict_table.rounds.length;
  return html`<section class="panel verdicts" aria-labelledby="verdicts">
    <div class="panel-head">
      <h2 id="verdicts">Verdicts <small class="muted">clients by rounds, gravest evidence first</small></h2>
      <div class="actions">
        <button type="button" class="quiet" onClick=${() => store.sort_by_evidence()}>Sort again</button>
        <button type="button" class="quiet" aria-label="Smaller cells" disabled=${cell_size === CELL_SIZES_PX[0]} onClick=${() => set_chosen_size(CELL_SIZES_PX[CELL_SIZES_PX.indexOf(cell_size) - 1])}>−</button>
        <button type="button" class="quiet" aria-label="Larger cells" disabled=${cell_size === CELL_SIZES_PX[CELL_SIZES_PX.length - 1]} onClick=${() => set_chosen_size(CELL_SIZES_PX[CELL_SIZES_PX.indexOf(cell_size) + 1])}>+</button>
      </div>
    </div>
    <ul class="legend" aria-label="Legend">
      ${DECISIONS.slice(0, NONE).map((decision) => html`<li key=${decision.name} title=${decision.description}><i class=${`cell ${decision.name}`} aria-hidden="true"></i>${decision.name}</li>`)}
    </ul>
    <div class=${open_cell ? "split" : ""}>
      <div>
        ${is_empty && html`<p class="empty">${store.rounds_loaded ? "No round has ended yet." : "Loading…"}</p>`}
        <div class="grid" hidden=${is_empty} ref=${container} style=${{ height: `${height}px` }}></div>
        <p class="readout" aria-live="polite" ref=${readout}>${" "}</p>
      </div>
      ${open_cell && html`<${CellDetails} store=${store} client_id=${open_cell.client_id} round=${open_cell.round} close=${() => set_open_cell(null)} />`}
    </div>
  </section>`;
}

/**
 * The side of a cell: the largest side with which all cells are visible, but at least the smallest side with legible
 * names.
 *
 * @param {number} client_count
 * @param {number} round_count
 */
function default_cell_size(client_count, round_count) {
  if (!client_count) return 10;
  const max_width = Math.min(1100, innerWidth - 260);
  return CELL_SIZES_PX.findLast((size) => size <= 10 || (size * client_count <= MAX_HEIGHT_PX && size * round_count <= max_width)) || 10;
}

/**
 * The verdicts as a source for a grid.
 *
 * @param {import("../run_store.js").RunStore} store
 * @param {(cell: {client_id: string, round: number}) => void} set_open_cell
 * @returns {import("../canvas_grid.js").GridSource}
 */
function grid_source(store, set_open_cell) {
  const { verdict_table } = store;
  const read_style = () => getComputedStyle(document.documentElement);
  const client_at = (/** @type {number} */ row) => verdict_table.clients[verdict_table.row_order[row]];
  return {
    label: `Verdicts of ${store.run_id}`,
    follows_last_column: true,
    row_count: () => verdict_table.row_order.length,
    column_count: () => verdict_table.rounds.length,
    colour_at: (row, column) => {
      const decision = verdict_table.decision_at(verdict_table.row_order[row], column);
      return decision === NONE ? -1 : decision;
    },
    palette: () => DECISIONS.map((decision) => read_style().getPropertyValue(`--${decision.name}`).trim()),
    mark_drawer: (colour) => {
      const { name, draw_mark } = DECISIONS[colour];
      if (!draw_mark) return undefined;
      return (context, side) => {
        context.strokeStyle = context.fillStyle = read_style().getPropertyValue(`--${name}-mark`).trim();
        draw_mark(context, side);
      };
    },
    row_name: client_at,
    column_name: (column) => String(verdict_table.rounds[column]),
    describe_cell: (row, column) => {
      const decision = DECISIONS[verdict_table.decision_at(verdict_table.row_order[row], column)];
      const score = verdict_table.score_at(verdict_table.row_order[row], column);
      return `${client_at(row)}, round ${verdict_table.rounds[column]}: ${decision.name}${Number.isNaN(score) ? "" : `, score ${format_number(score)}`}`;
    },
    open_cell: (row, column) => set_open_cell({ client_id: client_at(row), round: verdict_table.rounds[column] }),
  };
}
