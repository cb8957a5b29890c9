/** The data of a run: lost connections, failed requests, and the end of the run. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { RunStore } from "./assets/run_store.js";
import { Api, Clock, EventStream, STALLED, refusal } from "./harness.js";

const RUN = "/v1/runs/test-1";
let clock, stream, api, store, topics;

/** What the API says about round `round` of the run. */
function set_round(round, state = "running") {
  Object.assign(api.answers, {
    [`GET ${RUN}`]: { run: "test-1", state, waits_for: "", round },
    [`GET ${RUN}/rounds/current`]: { run: "test-1", status: state, waits_for: "", round },
  });
}

/** The numbers of the finished rounds that a request asks for. */
function finished_rounds(first, last) {
  const newest = api.answers[`GET ${RUN}`].state === "finished" ? api.answers[`GET ${RUN}`].round : api.answers[`GET ${RUN}`].round - 1;
  return Array.from({ length: Math.max(0, Math.min(last, newest) - first + 1) }, (_, index) => first + index);
}

beforeEach(() => {
  clock = new Clock();
  stream = new EventStream();
  api = new Api({
    [`GET ${RUN}/events`]: stream.answer,
    [`GET ${RUN}/proposals`]: [],
    [`GET ${RUN}/members`]: [],
    [`GET ${RUN}/figures`]: ({ query }) => finished_rounds(Number(query.from), Number(query.from) + Number(query.limit) - 1).map((round) => ({ round, accuracies: {}, decisions: {} })),
    [`GET ${RUN}/verdicts`]: ({ query }) => {
      const rounds = finished_rounds(Number(query.from), Number(query.to));
      const scores = Buffer.from(new Float32Array(rounds.length).buffer).toString("base64");
      return { clients: ["ada"], rounds, decisions: ["r".repeat(rounds.length)], scores };
    },
  });
  for (let round = 0; round < 1000; round += 1) api.answers[`GET ${RUN}/rounds/${round}`] = { verdicts: [] };
  set_round(2);
});

afterEach(() => store.close());

/** Opens the store, and waits until it has loaded the run. */
async function open() {
  store = new RunStore("test-1");
  topics = [];
  for (const topic of ["status", "verdicts", "summaries", "members", "events", "connection"]) store.addEventListener(topic, () => topics.push(topic));
  await clock.advance(1000);
  topics.length = 0;
}

test("a run is loaded with its rounds", async () => {
  await open();
  assert.equal(store.run_info.state, "running");
  assert.deepEqual(store.verdict_table.rounds, [0, 1]);
  assert.deepEqual(store.summaries.map((summary) => summary.round), [0, 1]);
});

test("a connection that is lost during a refresh is reported at once", async () => {
  await open();
  api.answers[`GET ${RUN}/rounds/current`] = STALLED;
  await stream.send("opened", { round: "2" }, "1-0");
  assert.ok(topics.includes("events"));
  await clock.advance(9_000);
  assert.equal(store.connection_error, "");
  assert.ok(store.is_refreshing);
  api.answers[`GET ${RUN}/events`] = STALLED;
  await clock.advance(2_000);
  assert.equal(store.connection_error, "The aggregator does not answer.");
  assert.ok(topics.includes("connection"));
  assert.equal(store.is_refreshing, false);
  assert.equal(store.error, "");
});

test("the data is requested again after a lost connection", async () => {
  await open();
  const current = api.answers[`GET ${RUN}/rounds/current`];
  api.answers[`GET ${RUN}/rounds/current`] = STALLED;
  await stream.send("opened", { round: "2" }, "1-0");
  await clock.advance(10_100);
  assert.notEqual(store.connection_error, "");
  api.answers[`GET ${RUN}/rounds/current`] = current;
  set_round(3);
  await clock.advance(1_000);
  assert.equal(store.connection_error, "");
  assert.equal(store.round_status.round, 3);
  assert.deepEqual(store.verdict_table.rounds, [0, 1, 2]);
});

test("a failed refresh is repeated, so that an ended run does not stay running", async () => {
  await open();
  set_round(2, "finished");
  const current = api.answers[`GET ${RUN}/rounds/current`];
  api.answers[`GET ${RUN}/rounds/current`] = refusal(503, "Redis does not answer");
  await stream.send("ended", { state: "finished" }, "1-0");
  assert.deepEqual([store.run_info.state, store.error, store.error_is_permanent], ["running", "Redis does not answer", false]);
  api.answers[`GET ${RUN}/rounds/current`] = current;
  await clock.advance(2_000);
  assert.deepEqual([store.run_info.state, store.error], ["finished", ""]);
  await clock.advance(1_000);
  assert.equal(store.is_refreshing, false);
});

for (const part of ["verdicts", "figures", "members", "proposals"]) {
  test(`new rounds and members are requested again if the request for ${part} fails`, async () => {
    await open();
    api.answers[`GET ${RUN}/members`] = [{ client_id: "bob" }];
    const answer = api.answers[`GET ${RUN}/${part}`];
    api.answers[`GET ${RUN}/${part}`] = new TypeError("network error");
    set_round(3);
    await stream.send("published", { round: "2" }, "1-0");
    await stream.send("evicted", { round: "2" }, "1-1");
    await clock.advance(1_900);
    assert.equal(store.error, "The aggregator does not answer.");
    api.answers[`GET ${RUN}/${part}`] = answer;
    await clock.advance(5_000);
    assert.equal(store.error, "");
    assert.deepEqual(store.verdict_table.rounds, [0, 1, 2]);
    assert.deepEqual(store.verdict_table.exclusion_count, [3]);
    assert.deepEqual(store.summaries.map((summary) => summary.round), [0, 1, 2]);
    assert.deepEqual(store.members, [{ client_id: "bob" }]);
  });
}

test("a refused refresh is not repeated", async () => {
  await open();
  api.answers[`GET ${RUN}`] = () => refusal(404, "there is no run test-1");
  api.answers[`GET ${RUN}/rounds/current`] = () => refusal(404, "there is no run test-1");
  await stream.send("published", { round: "2" }, "1-0");
  await clock.advance(9_000);
  assert.deepEqual([store.error, store.error_is_permanent], ["there is no run test-1", true]);
  assert.equal(store.is_refreshing, false);
  assert.equal(api.count("GET", `${RUN}/rounds/current`), 3);
});

test("a refresh is repeated after the API has received too many requests", async () => {
  await open();
  const current = api.answers[`GET ${RUN}/rounds/current`];
  api.answers[`GET ${RUN}/rounds/current`] = refusal(429, "too many requests");
  await stream.send("opened", { round: "2" }, "1-0");
  assert.deepEqual([store.error, store.error_is_permanent], ["too many requests", false]);
  api.answers[`GET ${RUN}/rounds/current`] = current;
  await clock.advance(2_000);
  assert.equal(store.error, "");
});

for (const [status, detail] of [[404, "there is no run test-1"], [403, "an operator's token is needed"]]) {
  test(`the page says so and stops when the events are refused with ${status}`, async () => {
    await open();
    api.answers[`GET ${RUN}/events`] = () => refusal(status, detail);
    await clock.advance(60_000);
    assert.deepEqual([store.connection_error, store.events_are_refused], [detail, true]);
    assert.deepEqual(topics.filter((topic) => topic === "connection").length, 2);
    assert.equal(api.count("GET", `${RUN}/events`), 2);
  });
}

test("a lost connection is not called a refusal", async () => {
  await open();
  api.answers[`GET ${RUN}/events`] = () => refusal(503, "Redis does not answer");
  await clock.advance(60_000);
  assert.deepEqual([store.connection_error, store.events_are_refused], ["Redis does not answer", false]);
  assert.ok(api.count("GET", `${RUN}/events`) > 3);
});

test("the stream is closed once the run has ended and all is loaded", async () => {
  await open();
  await stream.send("tick");
  assert.equal(stream.controllers.size, 1);
  set_round(2, "finished");
  await stream.send("ended", { state: "finished" }, "1-0");
  await stream.send("tick"); // The page waits 400 ms after a refresh, so the data may not be complete yet.
  assert.equal(stream.controllers.size, 1);
  await clock.advance(1_000);
  await stream.send("tick");
  assert.equal(stream.controllers.size, 0);
  await clock.advance(60_000);
  assert.equal(api.count("GET", `${RUN}/events`), 1);
  assert.deepEqual([store.connection_error, store.run_info.state], ["", "finished"]);
  assert.deepEqual(store.verdict_table.rounds, [0, 1, 2]);
  assert.deepEqual(store.events.map((event) => event.type), ["ended"]);
  set_round(2, "failed");
  store.mark_stale("status");
  await clock.advance(1_000);
  assert.equal(store.run_info.state, "failed");
});

test("the stream of an ended run stays open until all rounds and events are loaded", async () => {
  set_round(150, "finished");
  const figures = api.answers[`GET ${RUN}/figures`];
  api.answers[`GET ${RUN}/figures`] = (request) => (request.query.from === "0" ? refusal(503, "Redis does not answer") : figures(request));
  await open();
  await stream.send("tick");
  await stream.send("published", { round: "0" }, "1-0");
  assert.equal(stream.controllers.size, 1);
  api.answers[`GET ${RUN}/figures`] = figures;
  await clock.advance(5_000);
  assert.equal(stream.controllers.size, 1); // No tick has said that all events have arrived.
  await stream.send("tick");
  assert.equal(stream.controllers.size, 0);
  assert.equal(store.summaries.length, 151);
  assert.equal(store.verdict_table.rounds.length, 151);
});

test("clients that go offline are noticed although no event reports it", async () => {
  await open();
  api.answers[`GET ${RUN}/members`] = [{ client_id: "ada", online: false }];
  Object.assign(api.answers[`GET ${RUN}/rounds/current`], { online: 0, waits_for: "clients" });
  for (let tick = 0; tick < 5; tick += 1) {
    assert.equal(store.round_status.online, undefined);
    await stream.send("tick", {});
  }
  await clock.advance(1000);
  assert.equal(store.round_status.online, 0);
  assert.equal(store.members[0].online, false);
});

test("a round that ends between two requests is shown once and completely", async () => {
  const verdicts = api.answers[`GET ${RUN}/verdicts`];
  api.answers[`GET ${RUN}/verdicts`] = (request) => {
    if (request.query.from === "0") set_round(3);
    return verdicts(request);
  };
  await open();
  await stream.send("published", { round: "2" }, "1-0");
  await clock.advance(1000);
  assert.deepEqual(store.verdict_table.rounds, [0, 1, 2]);
  assert.deepEqual(store.summaries.map((summary) => summary.round), [0, 1, 2]);
});
