/** Several runs side by side: accuracy over rounds. */

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { Chart } from "../charts.js";
import { percent } from "../format.js";

/** Maximum numbers of rounds and of runs that are compared. */
const ROUNDS = 200;
const MOST = 6;

/** @param {{runs: any[]}} props */
export function Compare({ runs }) {
  const shown = runs.slice(0, MOST);
  const [curves, set] = useState(/** @type {Record<string, any[]>} */ ({}));
  const key = shown.map((run) => `${run.run} ${run.round}`).join();
  useEffect(() => {
    const abort = new AbortController();
    shown.forEach(async (run) => {
      const figures = await get(`/v1/runs/${run.run}/figures?limit=${ROUNDS}`, abort.signal).catch(() => []);
      if (!abort.signal.aborted) set((old) => ({ ...old, [run.run]: figures }));
    });
    return () => abort.abort();
  }, [key]);
  const data = useMemo(() => {
    const rounds = Math.max(0, ...shown.map((run) => (curves[run.run] || []).length));
    return [
      Array.from({ length: rounds }, (_, round) => round),
      ...shown.map((run) => Array.from({ length: rounds }, (_, at) => curves[run.run]?.[at]?.accuracies.customized ?? null)),
    ];
  }, [key, curves]);
  const lines = shown.map((run, index) => ({ label: run.run, colour: `--series-${index + 1}` }));
  return html`<section class="panel" aria-labelledby="compare">
    <h2 id="compare">Comparison <small class="muted">accuracy of received models, by round${runs.length > MOST ? `; the first ${MOST} runs` : ""}</small></h2>
    <${Chart} label=${`Accuracy of ${shown.map((run) => run.run).join(", ")} by round`} lines=${lines} data=${data} none="These runs have no accuracies yet." format=${percent} height=${220} />
  </section>`;
}
