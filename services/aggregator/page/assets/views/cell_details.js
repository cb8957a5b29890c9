/** Everything about one client in one round, and its evidence over rounds. */

import { html, useLayoutEffect, useRef } from "../vendor/preact.js";
import { acts } from "../acts.js";
import { ActButton } from "../dialog.js";
import { duration, number, percent } from "../format.js";
import { useAnswer } from "../hooks.js";
import { href } from "../router.js";
import { DecisionMark, Failure } from "../widgets.js";
import { EvidenceUntil } from "./evidence.js";

/** @param {{model: import("../run_model.js").RunModel, client: string, round: number, close: () => void}} props */
export function CellDetails({ model, client, round, close }) {
  const asked = `/v1/runs/${model.run}/figures?from=${round}&limit=1&client=${encodeURIComponent(client)}`;
  const { data, error } = useAnswer(asked);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const figures = data && data[0];
  const own = figures && figures.client;
  const again = () => model.touch("status", "standing");
  // A layout effect, so that Escape works from the moment that the details are visible.
  useLayoutEffect(() => {
    const leave = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) close();
    };
    addEventListener("keydown", leave);
    return () => removeEventListener("keydown", leave);
  }, []);
  return html`<aside class="details" ref=${box} aria-label=${`${client} in round ${round}`}>
    <div class="panel-head">
      <h3><a class="id" href=${href("clients", client)}>${client}</a> <small class="muted">in <a href=${href("runs", model.run, "rounds", round)}>round ${round}</a></small></h3>
      <button type="button" class="quiet" aria-label="Close the details" onClick=${close}>✕</button>
    </div>
    <${Failure} error=${error} />
    ${own && html`<${Part} figures=${figures} own=${own} />`}
    <div class="actions">
      <${Standing} model=${model} client=${client} again=${again} />
    </div>
    <${EvidenceUntil} run=${model.run} client=${client} round=${round} />
    ${own && html`<${Metrics} metrics=${own.metrics} />`}
  </aside>`;
}

/** @param {{model: import("../run_model.js").RunModel, client: string, again: () => void}} props */
function Standing({ model, client, again }) {
  if (model.over) return null;
  const status = model.status || { evicted: [], quarantined: [], proposed: [] };
  if (status.proposed.includes(client)) {
    return html`<${ActButton} act=${acts.confirm(model.run, client)} done=${again} /><${ActButton} act=${acts.dismiss(model.run, client)} done=${again} />`;
  }
  if (status.evicted.includes(client) || status.quarantined.includes(client)) {
    return html`<${ActButton} act=${acts.reinstate(model.run, client)} done=${again} />`;
  }
  return html`<${ActButton} act=${acts.evict(model.run, client)} done=${again} />`;
}

/** @param {{figures: any, own: any}} props */
function Part({ figures, own }) {
  const { verdict } = own;
  const decision = verdict ? verdict.decision : own.late ? "late" : own.absent ? "absent" : figures.status === "failed" ? "failed" : "none";
  return html`
    <p><${DecisionMark} name=${decision} />${verdict && verdict.asked && html`<span class="muted"> the detector asked for “${verdict.asked}”</span>`}</p>
    ${verdict && html`<p class="reason">${verdict.reason}</p>`}
    <dl class="pairs">
      ${verdict && html`<dt>Detector</dt><dd>${verdict.detector}</dd><dt>Score</dt><dd>${number(verdict.score)}</dd>
        <dt>Limit</dt><dd>${number(verdict.threshold)}</dd><dt>Evidence</dt><dd>${number(verdict.evidence)}</dd>`}
      <dt>Norm</dt><dd>${number(own.norm)} <span class="muted">median ${number(figures.norm_median)} ± ${number(figures.norm_mad)}</span></dd>
      <dt>Weight</dt><dd>${percent(own.weight)}</dd>
      ${own.staleness > 0 && html`<dt>Staleness</dt><dd>${own.staleness} rounds</dd>`}
      <dt>Round took</dt><dd>${duration(figures.seconds)}</dd>
    </dl>
  `;
}

/** @param {{metrics: Record<string, number>}} props */
function Metrics({ metrics }) {
  const total = metrics.test_samples;
  return html`
    <h4>Metrics of the client</h4>
    <dl class="pairs">
      ${Object.entries(metrics).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${number(value)}${total && name.startsWith("correct_") ? html` <span class="muted">${percent(value / total)}</span>` : ""}</dd>`)}
    </dl>
  `;
}
