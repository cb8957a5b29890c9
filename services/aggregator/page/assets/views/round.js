/** One finished round: its verdicts, where its models come from, and the weights that mixed them. */

import { html, useState } from "../vendor/preact.js";
import { download } from "../api.js";
import { DECISIONS } from "../decisions.js";
import { format_duration, format_number, format_percent, format_time, pluralize } from "../format.js";
import { useFetch } from "../hooks.js";
import { href } from "../router.js";
import { DecisionLabel, ErrorMessage, SummaryItem } from "../widgets.js";
import { RoundLineage } from "./round_lineage.js";
import { MixingMatrix } from "./mixing_matrix.js";

const MAX_VERDICTS_SHOWN = 100;
/** Time between two checks for the next round. */
const NEXT_ROUND_CHECK_INTERVAL_MS = 3000;

/** @param {{run_id: string, round: number}} props */
export function RoundView({ run_id, round }) {
  const { data, error } = useFetch(`/v1/runs/${run_id}/rounds/${round}?limit=10000`);
  const { data: next_rounds } = useFetch(`/v1/runs/${run_id}/figures?from=${round + 1}&limit=1`, NEXT_ROUND_CHECK_INTERVAL_MS);
  const [download_error, set_download_error] = useState("");
  const save_file = (/** @type {string} */ path, /** @type {string} */ file_name) => download(path, file_name).catch((error) => set_download_error(error.message));
  return html`
    <nav class="trail" aria-label="Path"><a href=${href("runs", run_id)}>${run_id}</a></nav>
    <div class="heading">
      <h1>Round ${round}</h1>
      ${data && html`<p class="muted">${data.status}${data.reason ? `: ${data.reason}` : ""}, ${format_time(data.closed_at)}</p>`}
      <div class="actions">
        ${round > 0 && html`<a class="button" href=${href("runs", run_id, "rounds", round - 1)}>Previous</a>`}
        ${next_rounds?.length > 0 && html`<a class="button" href=${href("runs", run_id, "rounds", round + 1)}>Next</a>`}
        <button type="button" onClick=${() => save_file(`/v1/runs/${run_id}/rounds/${round}?limit=10000`, `${run_id}-round-${round}.json`)}>Download record</button>
      </div>
    </div>
    <${ErrorMessage} error=${error || download_error} />
    ${data &&
    html`<dl class="facts">
        <${SummaryItem} name="Took">${format_duration(data.closed_at - data.opened_at)}<//>
        <${SummaryItem} name="Participants">${data.participants.length}<//>
        <${SummaryItem} name="No update in time">${data.missing.length}<//>
        <${SummaryItem} name="Mode of evictions">${data.mode || "–"}<//>
        <${SummaryItem} name="Policy">${data.policy}<//>
        <${SummaryItem} name="Probed">${data.probed.length}<//>
        <${SummaryItem} name="Only judged">${data.examined.length}<//>
      </dl>
      <${VerdictTable} record=${data} />
      <${RoundLineage} run_id=${run_id} record=${data} save_file=${save_file} />
      ${data.mixing_digest && html`<${MixingMatrix} run_id=${run_id} round=${round} />`}`}
  `;
}

/** @param {{record: any}} props */
function VerdictTable({ record }) {
  const [filter, set_filter] = useState("");
  const query = filter.trim().toLowerCase();
  const matches = record.verdicts.filter((/** @type {any} */ verdict) => !query || `${verdict.client} ${verdict.decision} ${verdict.reason}`.toLowerCase().includes(query));
  matches.sort((/** @type {any} */ a, /** @type {any} */ b) => severity_of(b) - severity_of(a) || b.evidence - a.evidence || (a.client < b.client ? -1 : 1));
  return html`<section class="panel" aria-labelledby="round-verdicts">
    <div class="panel-head">
      <h2 id="round-verdicts">Verdicts <small class="muted">${pluralize(record.verdicts.length, "client")}, gravest decision first</small></h2>
      <input type="search" aria-label="Filter verdicts" placeholder="Filter, such as rejected" value=${filter}
        onInput=${(/** @type {any} */ event) => set_filter(event.target.value)} />
    </div>
    <div class="table-box" tabindex="0" role="region" aria-label="Verdicts of the round">
      <table class="stacks">
        <thead><tr><th scope="col">Client</th><th scope="col">Decision</th><th scope="col" class="number">Score</th><th scope="col" class="number">Limit</th><th scope="col" class="number">Evidence</th><th scope="col" class="number">Norm</th><th scope="col" class="number">Weight</th><th scope="col">Detector and reason</th></tr></thead>
        <tbody>
          ${matches.slice(0, MAX_VERDICTS_SHOWN).map(
            (/** @type {any} */ verdict) => html`<tr key=${verdict.client}>
              <th scope="row"><a class="id" href=${href("clients", verdict.client)}>${verdict.client}</a></th>
              <td><${DecisionLabel} name=${verdict.decision} /></td>
              <td class="number" data-label="Score">${format_number(verdict.score)}</td>
              <td class="number" data-label="Limit">${format_number(verdict.threshold)}</td>
              <td class="number" data-label="Evidence">${format_number(verdict.evidence)}</td>
              <td class="number" data-label="Norm">${format_number(record.norms[verdict.client])}</td>
              <td class="number" data-label="Weight">${format_percent(record.weights[verdict.client])}</td>
              <td class="why"><span class="muted">${verdict.detector}:</span> ${verdict.reason}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${matches.length > MAX_VERDICTS_SHOWN && html`<p class="muted">${matches.length - MAX_VERDICTS_SHOWN} more; filter to see them.</p>`}
  </section>`;
}

/** @param {{decision: string}} verdict */
function severity_of({ decision }) {
  return DECISIONS.find(({ name }) => name === decision)?.severity ?? 0;
}
