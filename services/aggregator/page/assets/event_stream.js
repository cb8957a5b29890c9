/** Follows a run's events with `fetch`, because an EventSource cannot send a bearer token. */

import { ApiError, request } from "./api.js";

/** The page waits before it connects again. The delay doubles after each failure, up to the maximum. */
const MIN_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 15_000;
/** A connection counts as lost if no byte arrives for this time. The server sends a tick every 2 s. */
const IDLE_TIMEOUT_MS = 10_000;

/**
 * @typedef {{id: string, type: string, data: Record<string, string>}} RunEvent
 * @typedef {object} RunEventListener
 * @property {(events: RunEvent[]) => void} on_events called with a batch of events, in order
 * @property {(connection_error: string) => void} on_connection_change called with "" after connecting, or with the reason why the connection is lost
 * @property {() => void} on_tick called after each pause in which the server had no events to send
 * @property {(detail: string) => void} on_refusal called with the API's explanation when it refuses the events, so that the page stops following them
 */

/**
 * Follows a run's events until `signal` aborts or the API refuses the request. If the connection is lost, continues after the newest received event.
 *
 * @param {string} run_id
 * @param {RunEventListener} listener
 * @param {AbortSignal} signal
 */
export async function follow_events(run_id, listener, signal) {
  let last_event_id = "0-0";
  let retry_delay_ms = MIN_RETRY_DELAY_MS;
  while (!signal.aborted) {
    let connection_error = "The connection ended.";
    const attempt_controller = new AbortController();
    const abort_attempt = () => attempt_controller.abort();
    signal.addEventListener("abort", abort_attempt);
    let idle_timer = setTimeout(abort_attempt, IDLE_TIMEOUT_MS);
    try {
      const response = await request(`/v1/runs/${run_id}/events`, {
        headers: { "Last-Event-ID": last_event_id },
        signal: attempt_controller.signal,
      });
      listener.on_connection_change("");
      if (!response.body) throw new ApiError(0, "The browser cannot read a stream.");
      for await (const batch of parse_event_stream(response.body)) {
        clearTimeout(idle_timer);
        idle_timer = setTimeout(abort_attempt, IDLE_TIMEOUT_MS);
        retry_delay_ms = MIN_RETRY_DELAY_MS;
        const run_events = batch.filter((event) => event.type !== "tick");
        if (run_events.length) last_event_id = run_events[run_events.length - 1].id || last_event_id;
        listener.on_events(run_events);
        if (batch.length && batch[batch.length - 1].type === "tick") listener.on_tick();
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError) {
        connection_error = error.message;
        if (error.status === 403 || error.status === 404) listener.on_refusal(error.message);
        if (error.status === 401 || error.status === 403 || error.status === 404) return;
      } else {
        connection_error = "The aggregator does not answer.";
      }
    } finally {
      clearTimeout(idle_timer);
      signal.removeEventListener("abort", abort_attempt);
    }
    if (signal.aborted) return;
    listener.on_connection_change(connection_error);
    await new Promise((resolve) => setTimeout(resolve, retry_delay_ms));
    retry_delay_ms = Math.min(MAX_RETRY_DELAY_MS, retry_delay_ms * 2);
  }
}

/**
 * Parses server-sent events; yields them in the batches in which they arrive.
 *
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<RunEvent[]>}
 */
export async function* parse_event_stream(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let buffer = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (buffer + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n").split("\n\n");
      buffer = blocks.pop() || "";
      yield blocks.map(parse_event).filter((event) => event.type !== "");
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Parses the lines of one server-sent event.
 *
 * @param {string} block
 * @returns {RunEvent}
 */
function parse_event(block) {
  const event = { id: "", type: "", data: {} };
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.type = line.slice(7);
    else if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6)) || {};
  }
  return event;
}
