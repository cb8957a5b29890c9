/** Accuracies and norms of a run over rounds. */

import { html, useMemo } from "../vendor/preact.js";
import { Chart } from "../charts.js";
import { number, percent } from "../format.js";
import { useTopics } from "../hooks.js";

const ACCURACIES = [
  { key: "customized", label: "received", colour: "--series-1" },
  { key: "local", label: "after training", colour: "--series-2" },
  { key: "personalized", label: "personal", colour: "--series-3" },
];

/** @param {{model: import("../run_model.js").RunModel}} props */
export function Accuracy({ model }) {
  const count = useTopics(model, "figures");
  const data = useMemo(() => {
    const { figures } = model;
    return [figures.map((one) => one.round), ...ACCURACIES.map(({ key }) => figures.map((one) => one.accuracies[key] ?? null))];
  }, [count]);
  return html`<section class="panel" aria-labelledby="accuracy">
    <h2 id="accuracy">Accuracy <small class="muted">as all clients report it</small></h2>
    <${Chart} none=${model.figures.length ? "No client has reported an accuracy." : "No round has ended yet."} label="Accuracy of received models, after training, and of personal models, by round" lines=${ACCURACIES} data=${data} format=${percent} />
  </section>`;
}

/** @param {{model: import("../run_model.js").RunModel}} props */
export function Norms({ model }) {
  const count = useTopics(model, "figures");
  const data = useMemo(() => {
    const { figures } = model;
    const spread = (/** @type {number} */ times) =>
      figures.map((one) => (one.norm_median === null ? null : Math.max(0, one.norm_median + times * one.norm_mad)));
    return [figures.map((one) => one.round), spread(1), spread(0), spread(-1)];
  }, [count]);
  const lines = [
    { label: "median + MAD", colour: "--series-4", width: 1 },
    { label: "median", colour: "--series-1", width: 2 },
    { label: "median − MAD", colour: "--series-4", width: 1 },
  ];
  return html`<section class="panel" aria-labelledby="norms">
    <h2 id="norms">Norms <small class="muted">of the updates</small></h2>
    <${Chart} none="No round has ended yet." label="Median norm of the updates with its median absolute deviation, by round" lines=${lines} band=${[1, 3]} data=${data} format=${number} />
  </section>`;
}
