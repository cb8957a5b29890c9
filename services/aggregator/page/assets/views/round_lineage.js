/** How a round's models were made: the updates with their weights, the stages' reports, and the models' digests. */

import { html } from "../vendor/preact.js";
import { format_duration, format_percent, pluralize, shorten_digest } from "../format.js";
import { session } from "../session.js";

const MAX_UPDATES_SHOWN = 12;
const MAX_MODELS_SHOWN = 20;

/** @param {{run_id: string, record: any, save_file: (path: string, file_name: string) => void}} props */
export function RoundLineage({ run_id, record, save_file }) {
  const weights = Object.entries(record.weights)
    .map(([client, weight]) => /** @type {[string, number]} */ ([client, weight]))
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const max_weight = weights.length ? weights[0][1] : 1;
  const models = [...Object.entries(record.models), ...Object.entries(record.customized)].filter(([, digest]) => digest);
  return html`<section class="panel" aria-labelledby="lineage">
    <h2 id="lineage">Lineage <small class="muted">how this round's models were made</small></h2>
    <div class="lineage">
      <div>
        <h3>${pluralize(weights.length, "update")} with a weight</h3>
        <ol class="weights">
          ${weights.slice(0, MAX_UPDATES_SHOWN).map(
            ([client, weight]) => html`<li key=${client}>
              <span class="id">${client}</span><meter min="0" max=${max_weight} value=${weight} aria-label=${`Weight of ${client}`}></meter><span class="number">${format_percent(weight)}</span>
            </li>`,
          )}
        </ol>
        ${weights.length > MAX_UPDATES_SHOWN && html`<p class="muted">${weights.length - MAX_UPDATES_SHOWN} more, with weights from ${format_percent(weights[weights.length - 1][1])} to ${format_percent(weights[MAX_UPDATES_SHOWN][1])}</p>`}
      </div>
      <div>
        <h3>Stages</h3>
        <ol class="stages">
          ${record.reports.map((/** @type {any} */ report, /** @type {number} */ index) => html`<li key=${index}><b>${String(report.stage ?? report.name ?? `stage ${index + 1}`)}</b> <span class="muted">${describe_report(report)}</span></li>`)}
        </ol>
        <dl class="pairs">
          ${Object.entries(record.timings).map(([step, seconds]) => html`<dt key=${step}>${step}</dt><dd>${format_duration(/** @type {number} */ (seconds))}</dd>`)}
        </dl>
      </div>
      <div>
        <h3>Models</h3>
        <ul class="plain models">
          ${models.slice(0, MAX_MODELS_SHOWN).map(
            ([name, digest]) => html`<li key=${name}>
              <span class="id">${name}</span> <code title=${String(digest)}>${shorten_digest(String(digest))}</code>
              ${session.is_operator && html`<button type="button" class="quiet" aria-label=${`Download model ${name}`} onClick=${() => save_file(`/v1/runs/${run_id}/models/${digest}`, `${run_id}-${record.round}-${name}.safetensors`)}>Download</button>`}
            </li>`,
          )}
        </ul>
        ${models.length > MAX_MODELS_SHOWN && html`<p class="muted">and ${models.length - MAX_MODELS_SHOWN} more</p>`}
      </div>
    </div>
  </section>`;
}

/**
 * A stage's measurements as text, without lists and objects.
 *
 * @param {Record<string, unknown>} report
 */
function describe_report(report) {
  return Object.entries(report)
    .filter(([name, value]) => name !== "stage" && name !== "name" && (typeof value !== "object" || value === null))
    .map(([name, value]) => `${name} ${typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(3) : value}`)
    .join(", ");
}
