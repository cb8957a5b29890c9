/** What the tests of the page's modules share: a clock and an API that the test controls. */

/** Lets all promises that wait for no timer settle. */
export async function settle() {
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Replaces the timers: time passes only in `advance`. */
export class Clock {
  constructor() {
    this.now = 0;
    this.timers = new Map();
    this.next_id = 1;
    globalThis.setTimeout = (callback, delay = 0) => {
      this.timers.set(this.next_id, { time: this.now + delay, callback });
      return this.next_id++;
    };
    globalThis.clearTimeout = (id) => this.timers.delete(id);
  }

  /** Runs the timers of the next `duration` milliseconds, in order. */
  async advance(duration) {
    const end = this.now + duration;
    for (;;) {
      await settle();
      const due = [...this.timers].filter(([, timer]) => timer.time <= end).sort(([, a], [, b]) => a.time - b.time);
      if (!due.length) break;
      const [id, { time, callback }] = due[0];
      this.timers.delete(id);
      this.now = time;
      callback();
    }
    this.now = end;
    await settle();
  }
}

/** An answer that never arrives, as from a stalled network. */
export const STALLED = Symbol("stalled");

/** A refusal of the API. */
export function refusal(status, detail) {
  return new Response(JSON.stringify({ detail }), { status });
}

/**
 * Replaces `fetch`. `answers` has an answer for each method and path without its query, such as `GET /v1/runs`. An
 * answer is JSON, a Response, `STALLED`, an Error, or a function that gets the request and returns one of these.
 */
export class Api {
  constructor(answers) {
    this.answers = answers;
    this.requests = [];
    globalThis.fetch = (path, options) => this.fetch(path, options);
  }

  async fetch(path, { method = "GET", body, headers = {}, signal } = {}) {
    const [route, query = ""] = path.split("?");
    const request = { method, path: route, query: Object.fromEntries(new URLSearchParams(query)), body: body && JSON.parse(body), headers, signal };
    this.requests.push(request);
    signal?.throwIfAborted();
    let answer = this.answers[`${method} ${route}`];
    if (typeof answer === "function") answer = await answer(request);
    if (answer === undefined) throw new Error(`the test has no answer for ${method} ${path}`);
    if (answer === STALLED) {
      return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
    }
    if (answer instanceof Error) throw answer;
    return answer instanceof Response ? answer : new Response(JSON.stringify(answer));
  }

  /** How many requests a path without its query has received. */
  count(method, path) {
    return this.requests.filter((request) => request.method === method && request.path === path).length;
  }
}

/** A stream of events, as the API's answer to any number of requests. */
export class EventStream {
  constructor() {
    this.controllers = new Set();
    this.answer = ({ signal }) => {
      let controller;
      const body = new ReadableStream({
        start: (stream_controller) => {
          controller = stream_controller;
          this.controllers.add(controller);
        },
        cancel: () => this.controllers.delete(controller),
      });
      signal.addEventListener("abort", () => {
        if (this.controllers.delete(controller)) controller.error(signal.reason);
      });
      return new Response(body);
    };
  }

  /** Sends an event to every reader. */
  async send(type, data = {}, id = "") {
    const text = `${id && `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
    for (const controller of this.controllers) controller.enqueue(new TextEncoder().encode(text));
    await settle();
  }
}
