/** A chart that compares the accuracies of several runs, by round. */

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get_json } from "../api.js";
import { Chart } from "../charts.js";
import { format_percent } from "../format.js";

const MAX_ROUNDS = 200;
const MAX_RUNS = 6;

/** @param {{runs: any[]}} props */
export function RunComparison({ runs }) {
  const compared_runs = runs.slice(0, MAX_RUNS);
  const [summaries_by_run, set_summaries_by_run] = useState(/** @type {Record<string, any[]>} */ ({}));
  const request_key = compared_runs.map((run) => `${run.run} ${run.round}`).join();
  useEffect(() => {
    const abort_controller = new AbortController();
    compared_runs.forEach(async (run) => {
      const summaries = await get_json(`/v1/runs/${run.run}/figures?limit=${MAX_ROUNDS}`, abort_controller.signal).catch(() => []);
      if (!abort_controller.signal.aborted) set_summaries_by_run((previous) => ({ ...previous, [run.run]: summaries }));
    });
    return () => abort_controller.abort();
  }, [request_key]);
  const data = useMemo(() => {
    const round_count = Math.max(0, ...compared_runs.map((run) => (summaries_by_run[run.run] || []).length));
    return [
      Array.from({ length: round_count }, (_, round) => round),
      ...compared_runs.map((run) => Array.from({ length: round_count }, (_, round) => summaries_by_run[run.run]?.[round]?.accuracies.customized ?? null)),
    ];
  }, [request_key, summaries_by_run]);
  const lines = compared_runs.map((run, index) => ({ label: run.run, colour: `--series-${index + 1}` }));
  return html`<section class="panel" aria-labelledby="compare">
    <h2 id="compare">Comparison <small class="muted">accuracy of received models, by round${runs.length > MAX_RUNS ? `; the first ${MAX_RUNS} runs` : ""}</small></h2>
    <${Chart} label=${`Accuracy of ${compared_runs.map((run) => run.run).join(", ")} by round`} lines=${lines} data=${data} empty_text="These runs have no accuracies yet." format=${format_percent} height=${220} />
  </section>`;
}
