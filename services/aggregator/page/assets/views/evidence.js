/** A client's evidence, with its limit, and the norms of its updates over rounds. */

import { html, useMemo } from "../vendor/preact.js";
import { Chart } from "../charts.js";
import { number } from "../format.js";
import { useAnswer } from "../hooks.js";

/** Number of rounds in a chart. */
const SHOWN = 60;

/** @param {{run: string, client: string, round: number, norms?: boolean}} props */
export function EvidenceChart({ run, client, round, norms = true }) {
  const first = Math.max(0, round - SHOWN + 1);
  const { data } = useAnswer(`/v1/runs/${run}/figures?from=${first}&limit=${SHOWN}&client=${encodeURIComponent(client)}`);
  const [evidence, sizes] = useMemo(() => {
    /** @type {any[]} */
    const figures = data || [];
    const rounds = figures.map((one) => one.round);
    const verdict = (/** @type {any} */ one) => one.client.verdict || {};
    return [
      [rounds, figures.map((one) => verdict(one).evidence ?? null), figures.map((one) => verdict(one).threshold ?? null)],
      [rounds, figures.map((one) => one.client.norm), figures.map((one) => one.norm_median)],
    ];
  }, [data]);
  if (!data || !data.length) return null;
  return html`
    <${Chart} height=${130} label=${`Evidence against ${client} and its limit, by round`} data=${evidence} format=${number}
      lines=${[
        { label: "evidence", colour: "--series-1", width: 2 },
        { label: "limit", colour: "--evicted", dash: [5, 4] },
      ]} />
    ${norms &&
    html`<${Chart} height=${110} label=${`Norms of the updates of ${client} and the median, by round`} data=${sizes} format=${number}
      lines=${[
        { label: "norm", colour: "--series-2", width: 2 },
        { label: "median of all", colour: "--series-4", dash: [5, 4] },
      ]} />`}
  `;
}
