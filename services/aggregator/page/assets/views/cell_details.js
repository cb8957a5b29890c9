/** The details of a cell of the verdict matrix: one client in one round, and the client's evidence over rounds. */

import { html, useLayoutEffect, useRef } from "../vendor/preact.js";
import { actions } from "../actions.js";
import { ActionButton } from "../action_dialog.js";
import { format_duration, format_number, format_percent } from "../format.js";
import { useFetch } from "../hooks.js";
import { href } from "../router.js";
import { DecisionLabel, ErrorMessage } from "../widgets.js";
import { RecentEvidence } from "./evidence_charts.js";

/** @param {{store: import("../run_store.js").RunStore, client_id: string, round: number, close: () => void}} props */
export function CellDetails({ store, client_id, round, close }) {
  const path = `/v1/runs/${store.run_id}/figures?from=${round}&limit=1&client=${encodeURIComponent(client_id)}`;
  const { data, error } = useFetch(path);
  const details = useRef(/** @type {HTMLElement | null} */ (null));
  const round_summary = data && data[0];
  const client_summary = round_summary && round_summary.client;
  const refresh = () => store.mark_stale("status", "members");
  // This is a layout effect, so that Escape works as soon as the details are visible.
  useLayoutEffect(() => {
    const close_on_escape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) close();
    };
    addEventListener("keydown", close_on_escape);
    return () => removeEventListener("keydown", close_on_escape);
  }, []);
  return html`<aside class="details" ref=${details} aria-label=${`${client_id} in round ${round}`}>
    <div class="panel-head">
      <h3><a class="id" href=${href("clients", client_id)}>${client_id}</a> <small class="muted">in <a href=${href("runs", store.run_id, "rounds", round)}>round ${round}</a></small></h3>
      <button type="button" class="quiet" aria-label="Close the details" onClick=${close}>✕</button>
    </div>
    <${ErrorMessage} error=${error} />
    ${client_summary && html`<${VerdictDetails} round_summary=${round_summary} client_summary=${client_summary} />`}
    <div class="actions">
      <${ClientActions} store=${store} client_id=${client_id} refresh=${refresh} />
    </div>
    <${RecentEvidence} run_id=${store.run_id} client_id=${client_id} round=${round} />
    ${client_summary && html`<${Metrics} metrics=${client_summary.metrics} />`}
  </aside>`;
}

/** @param {{store: import("../run_store.js").RunStore, client_id: string, refresh: () => void}} props */
function ClientActions({ store, client_id, refresh }) {
  if (store.has_ended) return null;
  const round_status = store.round_status || { evicted: [], quarantined: [], proposed: [] };
  if (round_status.proposed.includes(client_id)) {
    return html`<${ActionButton} action=${actions.confirm_eviction(store.run_id, client_id)} on_success=${refresh} /><${ActionButton} action=${actions.dismiss_proposal(store.run_id, client_id)} on_success=${refresh} />`;
  }
  if (round_status.evicted.includes(client_id) || round_status.quarantined.includes(client_id)) {
    return html`<${ActionButton} action=${actions.reinstate_client(store.run_id, client_id)} on_success=${refresh} />`;
  }
  return html`<${ActionButton} action=${actions.evict_client(store.run_id, client_id)} on_success=${refresh} />`;
}

/** @param {{round_summary: any, client_summary: any}} props */
function VerdictDetails({ round_summary, client_summary }) {
  const { verdict } = client_summary;
  const decision = verdict ? verdict.decision : client_summary.late ? "late" : client_summary.absent ? "absent" : round_summary.status === "failed" ? "failed" : "none";
  return html`
    <p><${DecisionLabel} name=${decision} />${verdict && verdict.asked && html`<span class="muted"> the detector asked for “${verdict.asked}”</span>`}</p>
    ${verdict && html`<p class="reason">${verdict.reason}</p>`}
    <dl class="pairs">
      ${verdict && html`<dt>Detector</dt><dd>${verdict.detector}</dd><dt>Score</dt><dd>${format_number(verdict.score)}</dd>
        <dt>Limit</dt><dd>${format_number(verdict.threshold)}</dd><dt>Evidence</dt><dd>${format_number(verdict.evidence)}</dd>`}
      <dt>Norm</dt><dd>${format_number(client_summary.norm)} <span class="muted">median ${format_number(round_summary.norm_median)} ± ${format_number(round_summary.norm_mad)}</span></dd>
      <dt>Weight</dt><dd>${format_percent(client_summary.weight)}</dd>
      ${client_summary.staleness > 0 && html`<dt>Staleness</dt><dd>${client_summary.staleness} rounds</dd>`}
      <dt>Round took</dt><dd>${format_duration(round_summary.seconds)}</dd>
    </dl>
  `;
}

/** @param {{metrics: Record<string, number>}} props */
function Metrics({ metrics }) {
  const test_samples = metrics.test_samples;
  return html`
    <h4>Metrics of the client</h4>
    <dl class="pairs">
      ${Object.entries(metrics).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${format_number(value)}${test_samples && name.startsWith("correct_") ? html` <span class="muted">${format_percent(value / test_samples)}</span>` : ""}</dd>`)}
    </dl>
  `;
}
