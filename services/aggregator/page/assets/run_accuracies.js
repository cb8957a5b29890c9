/** Loads the accuracies of all rounds of a run, for the comparison of runs. */

import { get_json } from "./api.js";

/** Maximum number of rounds in one response. */
const ROUNDS_PER_REQUEST = 200;

/** The accuracies of a run's received models. Remembers the loaded rounds, so that each `load` requests only new ones. */
export class RunAccuracies {
  /** @param {string} run_id */
  constructor(run_id) {
    this.run_id = run_id;
    /** @type {(number | null | undefined)[]} by round; rounds without a record are missing */
    this.by_round = [];
    this.next_round = 0;
  }

  /**
   * Loads the rounds up to `last_round`, and calls `on_change` after each response.
   *
   * @param {number} last_round the run's newest round, which may not have ended
   * @param {AbortSignal} signal
   * @param {() => void} on_change
   */
  async load(last_round, signal, on_change) {
    while (this.next_round <= last_round) {
      const end = this.next_round + ROUNDS_PER_REQUEST;
      const summaries = await get_json(`/v1/runs/${this.run_id}/figures?from=${this.next_round}&limit=${ROUNDS_PER_REQUEST}`, signal);
      for (const { round, accuracies } of summaries) this.by_round[round] = accuracies.customized ?? null;
      on_change();
      if (end > last_round) {
        if (summaries.length) this.next_round = summaries[summaries.length - 1].round + 1;
        return;
      }
      this.next_round = end; // Rounds without a record have ended long ago, and their records are no longer kept.
    }
  }
}
