/** Operators' actions: each action's request, and the texts that describe the action. */

import { send_json } from "./api.js";

/**
 * @typedef {object} Action
 * @property {string} title the heading of the dialog
 * @property {string} label the text of the button that performs the action
 * @property {string} effect what the action does
 * @property {boolean} [destructive] whether the action does harm or cannot be undone
 * @property {(reason: string) => Promise<any>} perform sends the action's request
 */

/**
 * Returns a function that posts an operator's decision about a client in a run.
 *
 * @param {string} run_id
 * @param {string} client_id
 * @param {string} endpoint the last segment of the request's path
 */
function create_client_request(run_id, client_id, endpoint) {
  return (/** @type {string} */ reason) => send_json("POST", `/v1/runs/${run_id}/clients/${encodeURIComponent(client_id)}/${endpoint}`, reason_body(reason));
}

/**
 * A reason as the API accepts it: on one line, without white space at its ends.
 *
 * @param {string} text
 */
export function normalize_reason(text) {
  return text.replace(/\s+/g, " ").trim();
}

/** @param {string} reason */
function reason_body(reason) {
  return reason ? { reason } : {};
}

/** @param {string} reason */
function reason_query(reason) {
  return reason ? `?reason=${encodeURIComponent(reason)}` : "";
}

export const actions = {
  /** @param {string} run_id @param {string} client_id @returns {Action} */
  evict_client: (run_id, client_id) => ({
    title: `Evict ${client_id}`,
    label: "Evict",
    destructive: true,
    effect: `${client_id} is barred from run ${run_id} for good: its updates no longer count, and it gets no more models. Only “Reinstate” undoes this.`,
    perform: create_client_request(run_id, client_id, "evict"),
  }),
  /** @param {string} run_id @param {string} client_id @returns {Action} */
  reinstate_client: (run_id, client_id) => ({
    title: `Reinstate ${client_id}`,
    label: "Reinstate",
    effect: `${client_id} takes part in run ${run_id} again. The client first sends a probe, like a newcomer.`,
    perform: create_client_request(run_id, client_id, "reinstate"),
  }),
  /** @param {string} run_id @param {string} client_id @returns {Action} */
  reinstate_after_end: (run_id, client_id) => ({
    title: `Reinstate ${client_id}`,
    label: "Reinstate",
    effect: `${client_id} may download the final models of run ${run_id}, which has ended.`,
    perform: create_client_request(run_id, client_id, "reinstate"),
  }),
  /** @param {string} run_id @param {string} client_id @returns {Action} */
  confirm_eviction: (run_id, client_id) => ({
    title: `Confirm the eviction of ${client_id}`,
    label: "Confirm eviction",
    destructive: true,
    effect: `${client_id} is barred from run ${run_id} for good, as the detector proposed.`,
    perform: create_client_request(run_id, client_id, "confirm"),
  }),
  /** @param {string} run_id @param {string} client_id @returns {Action} */
  dismiss_proposal: (run_id, client_id) => ({
    title: `Dismiss the proposal to evict ${client_id}`,
    label: "Dismiss",
    effect: `${client_id} is readmitted to run ${run_id}, and the evidence against it is discarded.`,
    perform: create_client_request(run_id, client_id, "dismiss"),
  }),
  /** @param {string} run_id @returns {Action} */
  pause_run: (run_id) => ({
    title: `Pause ${run_id}`,
    label: "Pause",
    effect: "The current round ends as usual. No further round opens until you resume the run.",
    perform: (reason) => send_json("POST", `/v1/runs/${run_id}/pause`, reason_body(reason)),
  }),
  /** @param {string} run_id @returns {Action} */
  resume_run: (run_id) => ({
    title: `Resume ${run_id}`,
    label: "Resume",
    effect: "The run continues with its next round.",
    perform: (reason) => send_json("POST", `/v1/runs/${run_id}/resume`, reason_body(reason)),
  }),
  /** @param {string} run_id @returns {Action} */
  stop_run: (run_id) => ({
    title: `Stop ${run_id}`,
    label: "Stop",
    destructive: true,
    effect: "The current round is abandoned. Clients measure the final models, and then the run ends. A queued run is cancelled. This cannot be undone.",
    perform: (reason) => send_json("POST", `/v1/runs/${run_id}/stop`, reason_body(reason)),
  }),
  /** @param {string} run_id @param {string} mode @returns {Action} */
  set_mode: (run_id, mode) => ({
    title: `Set the mode to “${mode}”`,
    label: "Set mode",
    effect: `From now on, run ${run_id} ${EVICTION_MODES[mode]}. Rounds that are already computed do not change.`,
    perform: (reason) => send_json("POST", `/v1/runs/${run_id}/mode`, { mode, ...reason_body(reason) }),
  }),
  /** @param {string} run_id @returns {Action} */
  delete_run: (run_id) => ({
    title: `Delete ${run_id}`,
    label: "Delete",
    destructive: true,
    effect: `Run ${run_id} is deleted with its records, its models and its updates. This cannot be undone.`,
    perform: (reason) => send_json("DELETE", `/v1/runs/${run_id}${reason_query(reason)}`),
  }),
  /** @param {string} client_id @returns {Action} */
  bar_client: (client_id) => ({
    title: `Bar ${client_id} from the federation`,
    label: "Bar everywhere",
    destructive: true,
    effect: `${client_id} is evicted from the current run, and takes part in no later run until it is readmitted.`,
    perform: (reason) => send_json("POST", `/v1/clients/${encodeURIComponent(client_id)}/evict`, reason_body(reason)),
  }),
  /** @param {string} client_id @returns {Action} */
  readmit_client: (client_id) => ({
    title: `Readmit ${client_id} to the federation`,
    label: "Readmit",
    effect: `${client_id} may take part in later runs. If a run has evicted ${client_id}, the eviction lasts until an operator reinstates ${client_id} in that run.`,
    perform: (reason) => send_json("POST", `/v1/clients/${encodeURIComponent(client_id)}/reinstate`, reason_body(reason)),
  }),
  /** @param {string} client_id @returns {Action} */
  revoke_token: (client_id) => ({
    title: `Revoke the token of ${client_id}`,
    label: "Revoke token",
    destructive: true,
    effect: `Every further request of ${client_id} is refused until an operator sets a new token for it.`,
    perform: (reason) => send_json("DELETE", `/v1/clients/${encodeURIComponent(client_id)}/token${reason_query(reason)}`),
  }),
};

/** What a run does in each mode of evictions, from the weakest mode to the strongest. @type {Record<string, string>} */
export const EVICTION_MODES = {
  observe: "only records verdicts, and excludes nobody",
  reject: "may leave updates out of a round, but bars nobody",
  quarantine: "may bar clients for some rounds, but not for good",
  evict: "may bar clients for good",
};
