/** A matrix, ordered by cluster: either the weights that mixed a round's models, or the models' cosine similarities. */

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { request } from "../api.js";
import { CanvasGrid } from "../canvas_grid.js";
import { cluster_order, cosine_similarities } from "../clustering.js";
import { format_number } from "../format.js";
import { decode_mixing_weights } from "../safetensors.js";
import { ErrorMessage } from "../widgets.js";

/** Number of colours in the colour scale. */
const COLOUR_STEPS = 32;

/** @param {{run_id: string, round: number}} props */
export function MixingMatrix({ run_id, round }) {
  const container = useRef(/** @type {HTMLElement | null} */ (null));
  const readout = useRef(/** @type {HTMLElement | null} */ (null));
  const [mixing_weights, set_mixing_weights] = useState(/** @type {import("../safetensors.js").MixingWeights | null} */ (null));
  const [error, set_error] = useState("");
  const [quantity, set_quantity] = useState("weights");
  useEffect(() => {
    const abort_controller = new AbortController();
    request(`/v1/runs/${run_id}/rounds/${round}/weights`, { signal: abort_controller.signal })
      .then(async (response) => set_mixing_weights(decode_mixing_weights(await response.arrayBuffer())))
      .catch((failure) => abort_controller.signal.aborted || set_error(failure.message));
    return () => abort_controller.abort();
  }, [run_id, round]);
  const matrix = useMemo(() => (mixing_weights ? order_by_cluster(mixing_weights) : null), [mixing_weights]);
  useEffect(() => {
    if (!matrix || !container.current) return undefined;
    const grid = new CanvasGrid(container.current, grid_source(matrix, quantity), (text) => {
      if (readout.current) readout.current.textContent = text;
    });
    grid.set_cell_size(matrix.models.length > 60 ? 6 : 14);
    return () => grid.close();
  }, [matrix, quantity]);
  if (error) return html`<${ErrorMessage} error=${error} />`;
  const height = matrix ? Math.min(560, matrix.models.length * (matrix.models.length > 60 ? 6 : 14) + 38) : 120;
  return html`<section class="panel" aria-labelledby="weights">
    <div class="panel-head">
      <h2 id="weights">Customization <small class="muted">one row per model, one column per ${quantity === "weights" ? "client" : "model"}; similar rows are neighbours</small></h2>
      <select aria-label="What the matrix shows" value=${quantity} onChange=${(/** @type {any} */ event) => set_quantity(event.target.value)}>
        <option value="weights">weights</option>
        <option value="cosines">cosines of weights</option>
      </select>
    </div>
    <p class="scale" aria-hidden="true"><span>0</span><i class="ramp"></i><span>${quantity === "weights" ? format_number(matrix ? matrix.max_weight : 1) : "1"}</span></p>
    <div class="grid" ref=${container} style=${{ height: `${height}px` }}></div>
    <p class="readout" aria-live="polite" ref=${readout}>${" "}</p>
  </section>`;
}

/**
 * Orders the rows and columns of the matrix so that similar models are neighbours.
 *
 * @param {import("../safetensors.js").MixingWeights} mixing_weights
 */
function order_by_cluster({ models, clients, weights }) {
  const [row_count, column_count] = [models.length, clients.length];
  const similarities = cosine_similarities(weights, row_count, column_count);
  const row_order = cluster_order(similarities, row_count);
  const position_by_model = new Map(row_order.map((row, index) => [models[row], index]));
  const column_order = clients.map((_, column) => column).sort((a, b) => (position_by_model.get(clients[a]) ?? a) - (position_by_model.get(clients[b]) ?? b));
  let max_weight = 0;
  for (const weight of weights) max_weight = Math.max(max_weight, weight);
  return { models, clients, weights, similarities, row_order, column_order, max_weight: max_weight || 1 };
}

/**
 * The matrix as a source for a grid.
 *
 * @param {ReturnType<typeof order_by_cluster>} matrix
 * @param {string} quantity "weights" or "cosines"
 * @returns {import("../canvas_grid.js").GridSource}
 */
function grid_source(matrix, quantity) {
  const { models, clients, weights, similarities, row_order, column_order, max_weight } = matrix;
  const shows_weights = quantity === "weights";
  const names = shows_weights ? column_order.map((column) => clients[column]) : row_order.map((row) => models[row]);
  const value = (/** @type {number} */ row, /** @type {number} */ column) =>
    shows_weights ? weights[row_order[row] * clients.length + column_order[column]] : similarities[row_order[row] * models.length + row_order[column]];
  return {
    label: `Customization ${quantity}`,
    row_count: () => models.length,
    column_count: () => names.length,
    colour_at: (row, column) => Math.max(0, Math.min(COLOUR_STEPS - 1, Math.round((value(row, column) / (shows_weights ? max_weight : 1)) * (COLOUR_STEPS - 1)))),
    palette: () => {
      const style = getComputedStyle(document.documentElement);
      const [low_channels, high_channels] = ["--ramp-low", "--ramp-high"].map((name) => rgb_channels(style.getPropertyValue(name).trim()));
      return Array.from({ length: COLOUR_STEPS }, (_, step) => `rgb(${low_channels.map((low_channel, i) => Math.round(low_channel + ((high_channels[i] - low_channel) * step) / (COLOUR_STEPS - 1))).join(" ")})`);
    },
    row_name: (row) => models[row_order[row]],
    column_name: () => "",
    describe_cell: (row, column) => `${models[row_order[row]]} ${shows_weights ? "takes from" : "and"} ${names[column]}: ${format_number(value(row, column))}`,
    open_cell: () => {},
  };
}

/** @param {string} colour such as "#0a1b2c" */
function rgb_channels(colour) {
  return [1, 3, 5].map((offset) => parseInt(colour.slice(offset, offset + 2), 16));
}
