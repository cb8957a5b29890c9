/** Operators' actions: the request for each action, and a sentence about its effect. */

import { send } from "./api.js";

/**
 * @typedef {object} Act
 * @property {string} title
 * @property {string} verb the text of the button that performs the action
 * @property {string} outcome the effect of the action
 * @property {boolean} [grave] whether the action does harm or cannot be undone
 * @property {(reason: string) => Promise<any>} perform
 */

/**
 * @param {string} run
 * @param {string} client
 * @param {string} verb
 */
function decide(run, client, verb) {
  return (/** @type {string} */ reason) => send("POST", `/v1/runs/${run}/clients/${encodeURIComponent(client)}/${verb}`, body(reason));
}

/** @param {string} reason */
function body(reason) {
  return reason ? { reason } : {};
}

/** @param {string} reason */
function query(reason) {
  return reason ? `?reason=${encodeURIComponent(reason)}` : "";
}

export const acts = {
  /** @param {string} run @param {string} client @returns {Act} */
  evict: (run, client) => ({
    title: `Evict ${client}`,
    verb: "Evict",
    grave: true,
    outcome: `${client} is barred from run ${run} for good: its updates no longer count, and it gets no more models. Only “Reinstate” undoes this.`,
    perform: decide(run, client, "evict"),
  }),
  /** @param {string} run @param {string} client @returns {Act} */
  reinstate: (run, client) => ({
    title: `Reinstate ${client}`,
    verb: "Reinstate",
    outcome: `${client} takes part in run ${run} again. It first sends a probe, like a newcomer.`,
    perform: decide(run, client, "reinstate"),
  }),
  /** @param {string} run @param {string} client @returns {Act} */
  confirm: (run, client) => ({
    title: `Confirm the eviction of ${client}`,
    verb: "Confirm eviction",
    grave: true,
    outcome: `${client} is barred from run ${run} for good, as the detector proposed.`,
    perform: decide(run, client, "confirm"),
  }),
  /** @param {string} run @param {string} client @returns {Act} */
  dismiss: (run, client) => ({
    title: `Dismiss the proposal to evict ${client}`,
    verb: "Dismiss",
    outcome: `${client} is readmitted to run ${run}, and the evidence against it is discarded.`,
    perform: decide(run, client, "dismiss"),
  }),
  /** @param {string} run @returns {Act} */
  pause: (run) => ({
    title: `Pause ${run}`,
    verb: "Pause",
    outcome: "The current round ends as usual. No further round opens until you resume the run.",
    perform: (reason) => send("POST", `/v1/runs/${run}/pause`, body(reason)),
  }),
  /** @param {string} run @returns {Act} */
  resume: (run) => ({
    title: `Resume ${run}`,
    verb: "Resume",
    outcome: "The run continues with its next round.",
    perform: (reason) => send("POST", `/v1/runs/${run}/resume`, body(reason)),
  }),
  /** @param {string} run @returns {Act} */
  stop: (run) => ({
    title: `Stop ${run}`,
    verb: "Stop",
    grave: true,
    outcome: "The current round is abandoned. Clients measure the final models, and then the run ends. A queued run is cancelled. This cannot be undone.",
    perform: (reason) => send("POST", `/v1/runs/${run}/stop`, body(reason)),
  }),
  /** @param {string} run @param {string} mode @returns {Act} */
  mode: (run, mode) => ({
    title: `Set the mode to “${mode}”`,
    verb: "Set mode",
    outcome: `From the next decided round on, run ${run} at most ${MODES[mode]}.`,
    perform: (reason) => send("POST", `/v1/runs/${run}/mode`, { mode, ...body(reason) }),
  }),
  /** @param {string} run @returns {Act} */
  remove: (run) => ({
    title: `Delete ${run}`,
    verb: "Delete",
    grave: true,
    outcome: `Run ${run} is deleted with its records, its models and its updates. This cannot be undone.`,
    perform: (reason) => send("DELETE", `/v1/runs/${run}${query(reason)}`),
  }),
  /** @param {string} client @returns {Act} */
  bar: (client) => ({
    title: `Bar ${client} from the federation`,
    verb: "Bar everywhere",
    grave: true,
    outcome: `${client} is evicted from the current run, and takes part in no later run until it is readmitted.`,
    perform: (reason) => send("POST", `/v1/clients/${encodeURIComponent(client)}/evict`, body(reason)),
  }),
  /** @param {string} client @returns {Act} */
  readmit: (client) => ({
    title: `Readmit ${client} to the federation`,
    verb: "Readmit",
    outcome: `${client} may take part in later runs. If a run has evicted ${client}, the eviction lasts until an operator reinstates ${client} in that run.`,
    perform: (reason) => send("POST", `/v1/clients/${encodeURIComponent(client)}/reinstate`, body(reason)),
  }),
  /** @param {string} client @returns {Act} */
  revoke: (client) => ({
    title: `Revoke the token of ${client}`,
    verb: "Revoke token",
    grave: true,
    outcome: `Every further request of ${client} is refused until an operator sets a new token for it.`,
    perform: (reason) => send("DELETE", `/v1/clients/${encodeURIComponent(client)}/token${query(reason)}`),
  }),
};

/** The modes, from the weakest to the strongest, and what each may do. @type {Record<string, string>} */
export const MODES = {
  observe: "records verdicts, and excludes nobody",
  reject: "leaves updates out of a round",
  quarantine: "bars clients for some rounds",
  evict: "bars clients for good",
};
