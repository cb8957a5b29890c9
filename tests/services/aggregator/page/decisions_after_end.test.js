/** The buttons for decisions about clients, while a run is executed and after its end. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { session } from "./assets/session.js";
import { html, render } from "./assets/vendor/preact.js";
import { EvictionProposals } from "./assets/views/eviction_proposals.js";
import { RunMembers } from "./assets/views/run_members.js";
import { create_document } from "./dom.js";
import { Clock } from "./harness.js";

const member = (client_id, state) => ({ client_id, evicted: false, quarantine: null, reason: "", slot: 0, online: true, ...state });
let clock, root, store;

beforeEach(async () => {
  clock = new Clock();
  root = create_document();
  globalThis.location = { hash: "" };
  session.sign_in("a-token-of-an-operator", { name: "ada", role: "operator" });
  store = Object.assign(new EventTarget(), {
    run_id: "test-1",
    has_ended: false,
    members: [member("ada"), member("bob", { evicted: true }), member("cleo", { quarantine: { kind: "proposal", reason: "odd" } })],
    proposals: [{ client_id: "cleo", detector: "norm_bound", score: 6, threshold: 5, round: 0, until: 9, at: 0, reason: "odd" }],
    mark_stale() {},
  });
  render(html`<${EvictionProposals} store=${store} /><${RunMembers} store=${store} />`, root);
  await clock.advance(100);
});

afterEach(() => render(null, root));

const buttons = () => root.all("button").map((button) => button.text);

test("every decision is offered while the run is executed", () => {
  assert.deepEqual(buttons(), ["Confirm eviction", "Dismiss", "Reinstate", "Reinstate", "Evict"]);
});

test("once the run has ended, an evicted client can be reinstated, and nothing else is offered", async () => {
  store.has_ended = true;
  store.dispatchEvent(new Event("status"));
  await clock.advance(100);
  assert.deepEqual(buttons(), ["Reinstate"]);
});
