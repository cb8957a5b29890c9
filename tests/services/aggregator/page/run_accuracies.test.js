/** The accuracies that the comparison of runs shows. */

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { RunAccuracies } from "./assets/run_accuracies.js";
import { Api, Clock, refusal } from "./harness.js";

const PATH = "/v1/runs/test-1/figures";
const { signal } = new AbortController();
let api, records, accuracies;

beforeEach(() => {
  new Clock();
  records = [];
  // Like the API, leaves out rounds without a record.
  api = new Api({ [`GET ${PATH}`]: ({ query }) => records.slice(Number(query.from), Number(query.from) + Number(query.limit)).filter(Boolean) });
  accuracies = new RunAccuracies("test-1");
});

/** Adds the records of rounds. */
function add_records(first, end) {
  for (let round = first; round < end; round += 1) records[round] = { round, accuracies: { customized: round / 1000 } };
}

/** Loads the rounds up to `last_round`; returns the first round of each request. */
async function load(last_round) {
  const sent = api.requests.length;
  await accuracies.load(last_round, signal, () => {});
  return api.requests.slice(sent).map((request) => Number(request.query.from));
}

test("all rounds are loaded, and only new rounds are requested later", async () => {
  add_records(0, 450);
  assert.deepEqual(await load(450), [0, 200, 400]);
  assert.equal(accuracies.by_round.length, 450);
  assert.deepEqual(accuracies.by_round, records.map((record) => record.accuracies.customized));
  add_records(450, 451);
  assert.deepEqual(await load(450), [450]);
  assert.equal(accuracies.by_round[450], 0.45);
  assert.deepEqual(await load(450), []);
});

test("accuracies keep their rounds if old records are no longer kept", async () => {
  add_records(300, 401);
  assert.deepEqual(await load(400), [0, 200, 400]);
  assert.equal(accuracies.by_round.length, 401);
  assert.deepEqual([accuracies.by_round[299], accuracies.by_round[300]], [undefined, 0.3]);
});

test("a failed request is repeated from the first missing round", async () => {
  add_records(0, 450);
  const answer = api.answers[`GET ${PATH}`];
  api.answers[`GET ${PATH}`] = (request) => (request.query.from === "200" ? refusal(503, "Redis does not answer") : answer(request));
  await assert.rejects(load(450), { message: "Redis does not answer" });
  assert.equal(accuracies.by_round.length, 200);
  api.answers[`GET ${PATH}`] = answer;
  assert.deepEqual(await load(450), [200, 400]);
  assert.equal(accuracies.by_round.length, 450);
});

test("a round without an accuracy has a gap", async () => {
  records = [{ round: 0, accuracies: {} }, { round: 1, accuracies: { customized: 0.5 } }];
  await load(1);
  assert.deepEqual(accuracies.by_round, [null, 0.5]);
});
