/** Charts of a run's accuracies and of its updates' norms, by round. */

import { html, useMemo } from "../vendor/preact.js";
import { Chart } from "../charts.js";
import { format_number, format_percent } from "../format.js";
import { useStoreTopics } from "../hooks.js";

const ACCURACY_LINES = [
  { key: "customized", label: "received", colour: "--series-1" },
  { key: "local", label: "after training", colour: "--series-2" },
  { key: "personalized", label: "personal", colour: "--series-3" },
];

/** @param {{store: import("../run_store.js").RunStore}} props */
export function AccuracyChart({ store }) {
  const version = useStoreTopics(store, "summaries");
  const data = useMemo(() => {
    const { summaries } = store;
    return [summaries.map((summary) => summary.round), ...ACCURACY_LINES.map(({ key }) => summaries.map((summary) => summary.accuracies[key] ?? null))];
  }, [version]);
  return html`<section class="panel" aria-labelledby="accuracy">
    <h2 id="accuracy">Accuracy <small class="muted">as reported by all clients</small></h2>
    <${Chart} empty_text=${store.summaries.length ? "No client has reported an accuracy." : "No round has ended yet."} label="Accuracy of received models, after training, and of personal models, by round" lines=${ACCURACY_LINES} data=${data} format=${format_percent} />
  </section>`;
}

/** @param {{store: import("../run_store.js").RunStore}} props */
export function NormChart({ store }) {
  const version = useStoreTopics(store, "summaries");
  const data = useMemo(() => {
    const { summaries } = store;
    const norm_curve = (/** @type {number} */ mad_multiple) =>
      summaries.map((summary) => (summary.norm_median === null ? null : Math.max(0, summary.norm_median + mad_multiple * summary.norm_mad)));
    return [summaries.map((summary) => summary.round), norm_curve(1), norm_curve(0), norm_curve(-1)];
  }, [version]);
  const lines = [
    { label: "median + MAD", colour: "--series-4", width: 1 },
    { label: "median", colour: "--series-1", width: 2 },
    { label: "median − MAD", colour: "--series-4", width: 1 },
  ];
  return html`<section class="panel" aria-labelledby="norms">
    <h2 id="norms">Norms <small class="muted">of the updates</small></h2>
    <${Chart} empty_text="No round has ended yet." label="Median norm of the updates with its median absolute deviation, by round" lines=${lines} band=${[1, 3]} data=${data} format=${format_number} />
  </section>`;
}
