/** The current state of a run, and the buttons that control the run. */

import { html } from "../vendor/preact.js";
import { EVICTION_MODES, actions } from "../actions.js";
import { ActionButton, open_action_dialog } from "../action_dialog.js";
import { format_duration, format_relative_time, format_time } from "../format.js";
import { useFetch, useNow, useStoreTopics } from "../hooks.js";
import { href } from "../router.js";
import { session } from "../session.js";
import { ErrorMessage, ProgressBar, RunState, SummaryItem } from "../widgets.js";
import { count_ended_rounds } from "./runs.js";

/** @param {{store: import("../run_store.js").RunStore}} props */
export function RunStatus({ store }) {
  useStoreTopics(store, "status", "members");
  useNow();
  const { run_info, round_status } = store;
  const error = store.error && `${store.error}${store.error_is_permanent ? "" : " The page keeps trying."}`;
  if (!run_info) return html`<div class="heading"><h1>${store.run_id}</h1><p class="muted">${store.error ? "" : "Loading…"}</p></div>
    <${ErrorMessage} error=${error} />`;
  const refresh = () => store.mark_stale("status", "members");
  return html`
    <div class="heading">
      <h1>${run_info.run}</h1>
      <${RunState} state=${run_info.state} />
      <p class="muted">${state_description(run_info)}</p>
      <div class="actions">
        ${run_info.state === "running" && html`<${ActionButton} action=${actions.pause_run(run_info.run)} on_success=${refresh} />`}
        ${run_info.state === "paused" && html`<${ActionButton} action=${actions.resume_run(run_info.run)} on_success=${refresh} />`}
        ${!store.has_ended && run_info.state !== "stopping" && html`<${ActionButton} action=${actions.stop_run(run_info.run)} on_success=${refresh} />`}
      </div>
    </div>
    <${ErrorMessage} error=${error} />
    ${round_status && (round_status.warnings || []).map((/** @type {string} */ warning) => html`<p class="warning" key=${warning}>${warning}</p>`)}
    ${round_status && html`<${RunSummary} store=${store} refresh=${refresh} />`}
  `;
}

/** @param {any} run_info */
function state_description(run_info) {
  if (run_info.state === "queued") return `waits for ${run_info.waits_for}`;
  if (run_info.reason) return run_info.reason;
  if (run_info.ended_at) return `ended ${format_time(run_info.ended_at)}, after ${format_duration(run_info.ended_at - run_info.started_at)}`;
  if (run_info.waits_for) return `waits for ${run_info.waits_for}`;
  return run_info.started_at ? `started ${format_time(run_info.started_at)} by ${run_info.submitted_by}` : "";
}

/** @param {{store: import("../run_store.js").RunStore, refresh: () => void}} props */
function RunSummary({ store, refresh }) {
  const { round_status } = store;
  const expected_updates = round_status.selected.length || round_status.clients;
  const received_updates = round_status.received.length;
  const ended_rounds = store.has_ended ? count_ended_rounds(store.run_info) : round_status.round;
  return html`<dl class="facts">
    <${SummaryItem} name="Round">
      ${round_status.round}
      <${ProgressBar} total=${round_status.rounds} completed=${ended_rounds} label="Rounds" />
      <small class="muted">${ended_rounds} of ${round_status.rounds} ended</small>
      ${ended_rounds > 0 && html`<small><a href=${href("runs", store.run_id, "rounds", ended_rounds - 1)}>Newest: round ${ended_rounds - 1}</a></small>`}
    <//>
    <${SummaryItem} name="Phase">${round_status.phase}<small class="muted">${round_status.deadline && !store.has_ended ? `deadline ${format_relative_time(round_status.deadline)}` : ""}</small><//>
    <${SummaryItem} name="Posted">
      ${received_updates}<span class="muted"> of ${expected_updates}</span>
      <${ProgressBar} total=${expected_updates} completed=${received_updates} label="Clients that have posted" />
    <//>
    <${SummaryItem} name="Clients online">${round_status.online}<span class="muted"> of ${round_status.clients}</span><//>
    <${SummaryItem} name="Barred">
      <span class=${round_status.evicted.length ? "alarm" : ""}>${round_status.evicted.length}</span><span class="muted"> evicted</span>
      <small class="muted">${round_status.quarantined.length - round_status.proposed.length} quarantined, ${round_status.proposed.length} proposed</small>
    <//>
    <${SummaryItem} name="Mode of evictions">
      ${session.is_operator && !store.has_ended
        ? html`<select aria-label="Mode of evictions" value=${round_status.mode}
            onChange=${(/** @type {any} */ event) => {
              const mode = event.target.value;
              event.target.value = round_status.mode;
              open_action_dialog(actions.set_mode(store.run_id, mode), refresh);
            }}>
            ${Object.keys(EVICTION_MODES).map((mode) => html`<option key=${mode} value=${mode}>${mode}</option>`)}
          </select>`
        : round_status.mode}
    <//>
    <${ServiceHealth} />
  </dl>`;
}

/** The worker that holds the lease, and whether Redis and the blob store work. */
function ServiceHealth() {
  const { data, error } = useFetch("/v1/health", 5000);
  const health = data || {};
  const problem = error || health.redis || health.blobs;
  return html`
    <${SummaryItem} name="Worker" title="the worker that holds the lease">${data ? health.worker || html`<span class="alarm">none</span>` : "–"}<//>
    <${SummaryItem} name="Redis, blobs">
      ${data || error ? (problem ? html`<span class="alarm">${problem}</span>` : html`<span class="good">both work</span>`) : "–"}
    <//>
  `;
}
