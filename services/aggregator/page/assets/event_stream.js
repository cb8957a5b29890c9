/** Follows a run's events with `fetch`, because an EventSource cannot send a bearer token. */

import { Problem, request } from "./api.js";

const SHORTEST = 500;
const LONGEST = 15_000;
/** Milliseconds without a byte after which a connection counts as lost; a tick comes every 2 s. */
const SILENCE = 10_000;

/**
 * @typedef {{id: string, type: string, data: Record<string, string>}} RunEvent
 * @typedef {object} Listener
 * @property {(events: RunEvent[]) => void} events a burst of events, in order
 * @property {(lost: string) => void} connection "" once connected, or why the connection is lost
 */

/**
 * Follows a run until `signal` aborts. After a lost connection, it continues after the last event.
 *
 * @param {string} run
 * @param {Listener} listener
 * @param {AbortSignal} signal
 */
export async function follow(run, listener, signal) {
  let position = "0-0";
  let pause = SHORTEST;
  while (!signal.aborted) {
    let lost = "The connection ended.";
    const attempt = new AbortController();
    const give_up = () => attempt.abort();
    signal.addEventListener("abort", give_up);
    let timer = setTimeout(give_up, SILENCE);
    try {
      const answer = await request(`/v1/runs/${run}/events`, {
        headers: { "Last-Event-ID": position },
        signal: attempt.signal,
      });
      listener.connection("");
      if (!answer.body) throw new Problem(0, "The browser cannot read a stream.");
      for await (const burst of parse(answer.body)) {
        clearTimeout(timer);
        timer = setTimeout(give_up, SILENCE);
        pause = SHORTEST;
        const told = burst.filter((event) => event.type !== "tick");
        if (told.length) position = told[told.length - 1].id || position;
        listener.events(told);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem) {
        lost = error.message;
        if (error.status === 401 || error.status === 403 || error.status === 404) return;
      } else {
        lost = "The aggregator does not answer.";
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", give_up);
    }
    if (signal.aborted) return;
    listener.connection(lost);
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(LONGEST, pause * 2);
  }
}

/**
 * Parses server-sent events; yields them in the bursts in which they arrive.
 *
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<RunEvent[]>}
 */
export async function* parse(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop() || "";
      yield blocks.map(parse_block).filter((event) => event.type !== "");
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * @param {string} block
 * @returns {RunEvent}
 */
function parse_block(block) {
  const event = { id: "", type: "", data: {} };
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("event: ")) event.type = line.slice(7);
    else if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6)) || {};
  }
  return event;
}
