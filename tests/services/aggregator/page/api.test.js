/** Requests to the API that fail. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, get_json } from "./assets/api.js";
import { Api, Clock, STALLED, settle } from "./harness.js";

/** Sends a request, and records its outcome. */
function start(signal) {
  const outcome = { data: undefined, error: undefined };
  get_json("/v1/runs", signal).then((data) => (outcome.data = data), (error) => (outcome.error = error));
  return outcome;
}

test("a request fails if no response arrives in time", async () => {
  const clock = new Clock();
  new Api({ "GET /v1/runs": STALLED });
  const outcome = start();
  await clock.advance(29_999);
  assert.equal(outcome.error, undefined);
  await clock.advance(1);
  assert.ok(outcome.error instanceof ApiError);
  assert.deepEqual([outcome.error.status, outcome.error.message], [0, "The aggregator does not answer."]);
});

test("a request fails if the body stalls", async () => {
  const clock = new Clock();
  new Api({
    "GET /v1/runs": ({ signal }) => new Response(new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode("["));
        signal.addEventListener("abort", () => controller.error(signal.reason));
      },
    })),
  });
  const outcome = start();
  await clock.advance(30_000);
  assert.deepEqual([outcome.error.status, outcome.error.message], [0, "The aggregator does not answer."]);
});

test("a response in time leaves neither a timer nor a listener", async () => {
  const clock = new Clock();
  const api = new Api({ "GET /v1/runs": [] });
  const abort_controller = new AbortController();
  const outcome = start(abort_controller.signal);
  await settle();
  assert.deepEqual(outcome.data, []);
  assert.equal(clock.timers.size, 0);
  abort_controller.abort();
  assert.equal(api.requests[0].signal.aborted, false);
});

test("a caller can abort a request", async () => {
  new Clock();
  new Api({ "GET /v1/runs": STALLED });
  const abort_controller = new AbortController();
  const outcome = start(abort_controller.signal);
  abort_controller.abort();
  await settle();
  assert.equal(outcome.error.name, "AbortError");
});
