/** Where a round's models come from: the aggregated rows, the stages, and the digests. */

import { html } from "../vendor/preact.js";
import { duration, percent, plural, short } from "../format.js";
import { session } from "../session.js";

const ROWS = 12;
const MODELS = 20;

/** @param {{run: string, record: any, save: (path: string, name: string) => void}} props */
export function Lineage({ run, record, save }) {
  const rows = Object.entries(record.weights)
    .map(([client, share]) => /** @type {[string, number]} */ ([client, share]))
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const most = rows.length ? rows[0][1] : 1;
  const models = [...Object.entries(record.models), ...Object.entries(record.customized)].filter(([, digest]) => digest);
  return html`<section class="panel" aria-labelledby="lineage">
    <h2 id="lineage">Lineage <small class="muted">how this round's models were made</small></h2>
    <div class="lineage">
      <div>
        <h3>${plural(rows.length, "update")} with a weight</h3>
        <ol class="weights">
          ${rows.slice(0, ROWS).map(
            ([client, share]) => html`<li key=${client}>
              <span class="id">${client}</span><meter min="0" max=${most} value=${share} aria-label=${`Weight of ${client}`}></meter><span class="number">${percent(share)}</span>
            </li>`,
          )}
        </ol>
        ${rows.length > ROWS && html`<p class="muted">${rows.length - ROWS} more with ${percent(rows[rows.length - 1][1])} to ${percent(rows[ROWS][1])}</p>`}
      </div>
      <div>
        <h3>Stages</h3>
        <ol class="stages">
          ${record.reports.map((/** @type {any} */ report, /** @type {number} */ index) => html`<li key=${index}><b>${String(report.stage ?? report.name ?? `stage ${index + 1}`)}</b> <span class="muted">${said(report)}</span></li>`)}
        </ol>
        <dl class="pairs">
          ${Object.entries(record.timings).map(([step, seconds]) => html`<dt key=${step}>${step}</dt><dd>${duration(/** @type {number} */ (seconds))}</dd>`)}
        </dl>
      </div>
      <div>
        <h3>Models</h3>
        <ul class="plain models">
          ${models.slice(0, MODELS).map(
            ([name, digest]) => html`<li key=${name}>
              <span class="id">${name}</span> <code title=${String(digest)}>${short(String(digest))}</code>
              ${session.acts && html`<button type="button" class="quiet" aria-label=${`Download model ${name}`} onClick=${() => save(`/v1/runs/${run}/models/${digest}`, `${run}-${record.round}-${name}.safetensors`)}>Download</button>`}
            </li>`,
          )}
        </ul>
        ${models.length > MODELS && html`<p class="muted">and ${models.length - MODELS} more</p>`}
      </div>
    </div>
  </section>`;
}

/**
 * What a stage measured, without long lists.
 *
 * @param {Record<string, unknown>} report
 */
function said(report) {
  return Object.entries(report)
    .filter(([name, value]) => name !== "stage" && name !== "name" && (typeof value !== "object" || value === null))
    .map(([name, value]) => `${name} ${typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(3) : value}`)
    .join(", ");
}
