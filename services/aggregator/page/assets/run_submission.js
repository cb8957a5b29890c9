/** Submits runs; a repeated request does not queue a run twice. */

import { send_json } from "./api.js";

/** Gives each draft one key: the API creates only one run for a key. */
export class RunSubmission {
  constructor() {
    /** The body of the newest request, as JSON. */
    this.draft = "";
    this.key = "";
    /** The run that the API created for the draft; "" until the API has responded. */
    this.run_id = "";
  }

  /**
   * Submits a run, or repeats the previous request if the body is the same.
   *
   * @param {{experiment: any, name?: string, reason?: string}} body
   * @returns {Promise<{run_id: string, is_repetition: boolean}>} whether an earlier response already named this run
   */
  async submit(body) {
    const draft = JSON.stringify(body);
    if (draft !== this.draft) Object.assign(this, { draft, key: create_key(), run_id: "" });
    const { run } = await send_json("POST", "/v1/runs", { ...body, submission: this.key });
    if (draft !== this.draft) return { run_id: run, is_repetition: false };
    const is_repetition = run === this.run_id;
    this.run_id = run;
    return { run_id: run, is_repetition };
  }
}

/** A random key. Without TLS, most browsers lack `crypto.randomUUID`. */
function create_key() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
