/** The form that submits a run. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { session } from "./assets/session.js";
import { html, render } from "./assets/vendor/preact.js";
import { SubmitForm } from "./assets/views/submit_form.js";
import { create_document } from "./dom.js";
import { Api, Clock, STALLED, refusal, settle } from "./harness.js";

const { randomUUID } = crypto;
let clock, root, api, runs;

beforeEach(async () => {
  clock = new Clock();
  root = create_document();
  session.sign_in("a-token-of-an-operator", { name: "ada", role: "operator" });
  runs = new Map();
  api = new Api({
    // Like the API, creates one run for each key, and one for each request without a key.
    "POST /v1/runs": ({ body }) => {
      const key = body.submission ?? Symbol("no key");
      if (!runs.has(key)) runs.set(key, `test-${runs.size + 1}`);
      return { run: runs.get(key) };
    },
  });
  render(html`<${SubmitForm} runs=${[{ run: "old-1" }]} on_submitted=${() => {}} />`, root);
  await settle();
  await root.one("textarea").act("input", "rounds = 3");
});

afterEach(async () => {
  render(null, root);
  Object.defineProperty(crypto, "randomUUID", { value: randomUUID, configurable: true });
  await clock.advance(100);
});

const submit = () => root.one("form").act("submit");
const message = () => root.all("p").find((paragraph) => paragraph.attributes.role === "status").text;
const buttons = () => root.all("button").map((button) => button.disabled);
const keys = () => api.requests.map((request) => request.body.submission);

test("the buttons are disabled while a request is pending", async () => {
  let respond;
  api.answers["POST /v1/runs"] = () => new Promise((resolve) => (respond = resolve));
  assert.deepEqual(buttons(), [false, false]);
  await submit();
  assert.deepEqual(buttons(), [true, true]);
  respond({ run: "test-1" });
  await settle();
  assert.deepEqual(buttons(), [false, false]);
  assert.equal(message(), "Submitted as test-1.");
});

test("a retry after a lost response does not submit the run twice", async () => {
  const answer = api.answers["POST /v1/runs"];
  api.answers["POST /v1/runs"] = (request) => {
    answer(request);
    throw new TypeError("network error");
  };
  await submit();
  assert.equal(message(), "The aggregator does not answer.");
  api.answers["POST /v1/runs"] = answer;
  await submit();
  assert.equal(message(), "Submitted as test-1.");
  assert.equal(runs.size, 1);
});

test("a stalled submission can be repeated after a minute", async () => {
  const answer = api.answers["POST /v1/runs"];
  api.answers["POST /v1/runs"] = STALLED;
  await submit();
  await clock.advance(59_999);
  assert.deepEqual(buttons(), [true, true]);
  await clock.advance(1);
  assert.deepEqual(buttons(), [false, false]);
  assert.equal(message(), "The aggregator does not answer.");
  api.answers["POST /v1/runs"] = answer;
  await submit();
  assert.equal(message(), "Submitted as test-1.");
  assert.equal(new Set(keys()).size, 1);
});

test("a second click submits no second run, but a changed draft does", async () => {
  await submit();
  await submit();
  assert.equal(message(), "Already submitted as test-1. To submit another run, change the name, the reason or the experiment.");
  assert.equal(runs.size, 1);
  await root.one("input", "submit-name").act("input", "again");
  await submit();
  assert.equal(message(), "Submitted as test-2.");
  assert.deepEqual(api.requests.map((request) => request.body.name), [undefined, undefined, "again"]);
});

test("two requests at the same time have the same key", async () => {
  root.one("form").act("submit");
  await submit();
  assert.equal(keys().length, 2);
  assert.equal(runs.size, 1);
});

test("keys differ where the browser has no randomUUID", async () => {
  Object.defineProperty(crypto, "randomUUID", { value: undefined, configurable: true });
  await submit();
  await root.one("textarea").act("input", "rounds = 4");
  await submit();
  assert.equal(new Set(keys()).size, 2);
  for (const key of keys()) assert.match(key, /^[0-9a-f]{32}$/);
});

test("a blank reason is left out, and line breaks are not sent", async () => {
  await root.one("input", "submit-reason").act("input", "  ");
  await submit();
  await root.one("input", "submit-reason").act("input", " weekly\u2028run ");
  await submit();
  assert.deepEqual(api.requests.map((request) => request.body.reason), [undefined, "weekly run"]);
});

test("the experiment of an earlier run is copied, or the page says why not", async () => {
  api.answers["GET /v1/runs/old-1/experiment"] = { rounds: 7 };
  await root.one("select").act("change", "old-1");
  assert.equal(root.one("textarea").value, '{\n  "rounds": 7\n}');
  assert.deepEqual(buttons(), [false, false]);
  api.answers["GET /v1/runs/old-1/experiment"] = refusal(404, "there is no run old-1");
  await root.one("select").act("change", "old-1");
  assert.equal(message(), "there is no run old-1");
});
