/** One finished round: its verdicts, where its models come from, and the weights that mixed them. */

import { html, useState } from "../vendor/preact.js";
import { download } from "../api.js";
import { DECISIONS } from "../decisions.js";
import { clock, duration, number, percent, plural } from "../format.js";
import { useAnswer } from "../hooks.js";
import { href } from "../router.js";
import { DecisionMark, Fact, Failure } from "../widgets.js";
import { Lineage } from "./lineage.js";
import { Weights } from "./weights.js";

const SHOWN = 100;
/** Milliseconds between two checks for a next round. */
const EVERY = 3000;

/** @param {{run: string, round: number}} props */
export function RoundView({ run, round }) {
  const { data, error } = useAnswer(`/v1/runs/${run}/rounds/${round}?limit=10000`);
  const { data: following } = useAnswer(`/v1/runs/${run}/figures?from=${round + 1}&limit=1`, EVERY);
  const [fault, tell] = useState("");
  const save = (/** @type {string} */ path, /** @type {string} */ name) => download(path, name).catch((problem) => tell(problem.message));
  return html`
    <nav class="trail" aria-label="Path"><a href=${href("runs", run)}>${run}</a></nav>
    <div class="heading">
      <h1>Round ${round}</h1>
      ${data && html`<p class="muted">${data.status}${data.reason ? `: ${data.reason}` : ""}, ${clock(data.closed_at)}</p>`}
      <div class="actions">
        ${round > 0 && html`<a class="button" href=${href("runs", run, "rounds", round - 1)}>Previous</a>`}
        ${following?.length > 0 && html`<a class="button" href=${href("runs", run, "rounds", round + 1)}>Next</a>`}
        <button type="button" onClick=${() => save(`/v1/runs/${run}/rounds/${round}?limit=10000`, `${run}-round-${round}.json`)}>Download record</button>
      </div>
    </div>
    <${Failure} error=${error || fault} />
    ${data &&
    html`<dl class="facts">
        <${Fact} name="Took">${duration(data.closed_at - data.opened_at)}<//>
        <${Fact} name="Participants">${data.participants.length}<//>
        <${Fact} name="No update in time">${data.missing.length}<//>
        <${Fact} name="Mode of evictions">${data.mode || "–"}<//>
        <${Fact} name="Policy">${data.policy}<//>
        <${Fact} name="Probed">${data.probed.length}<//>
      </dl>
      <${VerdictList} record=${data} />
      <${Lineage} run=${run} record=${data} save=${save} />
      ${data.mixing_digest && html`<${Weights} run=${run} round=${round} />`}`}
  `;
}

/** @param {{record: any}} props */
function VerdictList({ record }) {
  const [filter, write] = useState("");
  const wanted = filter.trim().toLowerCase();
  const found = record.verdicts.filter((/** @type {any} */ one) => !wanted || `${one.client} ${one.decision} ${one.reason}`.toLowerCase().includes(wanted));
  found.sort((/** @type {any} */ a, /** @type {any} */ b) => severity(b) - severity(a) || b.evidence - a.evidence || (a.client < b.client ? -1 : 1));
  return html`<section class="panel" aria-labelledby="round-verdicts">
    <div class="panel-head">
      <h2 id="round-verdicts">Verdicts <small class="muted">${plural(record.verdicts.length, "client")}, gravest decision first</small></h2>
      <input type="search" aria-label="Filter verdicts" placeholder="Filter, such as rejected" value=${filter}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} />
    </div>
    <div class="table-box" tabindex="0" role="region" aria-label="Verdicts of the round">
      <table class="stacks">
        <thead><tr><th scope="col">Client</th><th scope="col">Decision</th><th scope="col" class="number">Score</th><th scope="col" class="number">Limit</th><th scope="col" class="number">Evidence</th><th scope="col" class="number">Norm</th><th scope="col" class="number">Weight</th><th scope="col">Detector and reason</th></tr></thead>
        <tbody>
          ${found.slice(0, SHOWN).map(
            (/** @type {any} */ one) => html`<tr key=${one.client}>
              <th scope="row"><a class="id" href=${href("clients", one.client)}>${one.client}</a></th>
              <td><${DecisionMark} name=${one.decision} /></td>
              <td class="number" data-label="Score">${number(one.score)}</td>
              <td class="number" data-label="Limit">${number(one.threshold)}</td>
              <td class="number" data-label="Evidence">${number(one.evidence)}</td>
              <td class="number" data-label="Norm">${number(record.norms[one.client])}</td>
              <td class="number" data-label="Weight">${percent(record.weights[one.client])}</td>
              <td class="why"><span class="muted">${one.detector}:</span> ${one.reason}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${found.length > SHOWN && html`<p class="muted">${found.length - SHOWN} more; filter to see them.</p>`}
  </section>`;
}

/** @param {{decision: string}} verdict */
function severity({ decision }) {
  return DECISIONS.find(({ name }) => name === decision)?.severity ?? 0;
}
