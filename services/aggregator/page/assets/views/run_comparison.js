/** A chart that compares the accuracies of several runs, by round. */

import { html, useEffect, useMemo, useReducer, useState } from "../vendor/preact.js";
import { Chart } from "../charts.js";
import { format_percent } from "../format.js";
import { RunAccuracies } from "../run_accuracies.js";
import { ErrorMessage } from "../widgets.js";

const MAX_RUNS = 6;
const RETRY_DELAY_MS = 5000;

/** @param {{runs: any[]}} props */
export function RunComparison({ runs }) {
  const compared_runs = runs.slice(0, MAX_RUNS);
  const [loaded_runs] = useState(() => /** @type {Map<string, RunAccuracies>} */ (new Map()));
  const [version, show_changes] = useReducer((/** @type {number} */ previous) => previous + 1, 0);
  const [retry_count, retry] = useReducer((/** @type {number} */ previous) => previous + 1, 0);
  const [error, set_error] = useState("");
  const run_ids = compared_runs.map((run) => run.run).join();
  // The newest round of a run ends either with the start of the next round, or with the run.
  const request_key = compared_runs.map((run) => [run.run, run.state, run.started_at, run.round].join(" ")).join();
  useEffect(() => {
    const abort_controller = new AbortController();
    let timer = 0;
    const load_runs = async () => {
      let new_error = "";
      for (const run of compared_runs.filter((run) => run.started_at)) {
        const accuracies = loaded_runs.get(run.run) || new RunAccuracies(run.run);
        loaded_runs.set(run.run, accuracies);
        try {
          await accuracies.load(run.round, abort_controller.signal, () => show_changes(0));
        } catch (error) {
          new_error = `Some rounds of ${run.run} are missing from the comparison: ${error instanceof Error ? error.message : String(error)}`;
        }
        if (abort_controller.signal.aborted) return;
      }
      set_error(new_error);
      if (new_error) timer = setTimeout(() => retry(0), RETRY_DELAY_MS);
    };
    load_runs();
    return () => {
      abort_controller.abort();
      clearTimeout(timer);
    };
  }, [request_key, retry_count]);
  const data = useMemo(() => {
    const accuracies = compared_runs.map((run) => loaded_runs.get(run.run)?.by_round || []);
    const rounds = Array.from({ length: Math.max(0, ...accuracies.map((by_round) => by_round.length)) }, (_, round) => round);
    return [rounds, ...accuracies.map((by_round) => rounds.map((round) => by_round[round] ?? null))];
  }, [run_ids, version]);
  const lines = compared_runs.map((run, index) => ({ label: run.run, colour: `--series-${index + 1}` }));
  return html`<section class="panel" aria-labelledby="compare">
    <h2 id="compare">Comparison <small class="muted">accuracy of received models, by round${runs.length > MAX_RUNS ? `; the first ${MAX_RUNS} runs` : ""}</small></h2>
    <${ErrorMessage} error=${error} />
    <${Chart} label=${`Accuracy of ${compared_runs.map((run) => run.run).join(", ")} by round`} lines=${lines} data=${data} empty_text="These runs have no accuracies yet." format=${format_percent} height=${220} />
  </section>`;
}
