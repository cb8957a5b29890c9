/** The dialog that asks for the reason of an action. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { ActionDialog, open_action_dialog } from "./assets/action_dialog.js";
import { html, render } from "./assets/vendor/preact.js";
import { create_document } from "./dom.js";
import { Clock, settle } from "./harness.js";

let clock, root, reasons;

beforeEach(async () => {
  clock = new Clock();
  root = create_document();
  reasons = [];
  render(html`<${ActionDialog} />`, root);
  await clock.advance(100); // Preact runs effects after a timer.
  open_action_dialog({ title: "Evict ada", label: "Evict", effect: "", perform: async (reason) => reasons.push(reason) });
  await settle();
});

afterEach(async () => {
  render(null, root);
  await clock.advance(100);
});

/** Enters a reason and confirms. */
async function confirm(reason) {
  await root.one("textarea").act("input", reason);
  await root.one("form").act("submit");
}

test("line breaks and runs of spaces in a reason become single spaces", async () => {
  await confirm("  far\r\n\r\nfrom\t all\u2028others \n");
  assert.deepEqual(reasons, ["far from all others"]);
  assert.equal(root.one("dialog"), undefined);
});

test("a reason of only white space is not sent", async () => {
  await confirm(" \n\t ");
  assert.deepEqual(reasons, []);
  assert.equal(root.one("p", "act-error").text, "The reason is only white space: enter a reason.");
  await confirm("odd");
  assert.deepEqual(reasons, ["odd"]);
});
