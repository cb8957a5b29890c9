/** What a detector compared with its limit for a client, and the client's norms, over rounds. */

import { html, useMemo } from "../vendor/preact.js";
import { Chart } from "../charts.js";
import { number } from "../format.js";
import { useAnswer } from "../hooks.js";

/** Number of rounds in a chart. */
const SHOWN = 60;
const SCORE = { label: "score", colour: "--series-1", width: 2 };
const LIMIT = { label: "limit", colour: "--evicted", dash: [5, 4] };
const EVIDENCE = { label: "evidence", colour: "--series-3" };

/** @param {{run: string, client: string, round: number}} props */
export function EvidenceUntil({ run, client, round }) {
  const first = Math.max(0, round - SHOWN + 1);
  const { data } = useAnswer(`/v1/runs/${run}/figures?from=${first}&limit=${SHOWN}&client=${encodeURIComponent(client)}`);
  return data && data.length ? html`<${Evidence} client=${client} figures=${data} />` : null;
}

/**
 * A detector's score is either its evidence or the measurement of one round. In the second case, the
 * chart shows the evidence as a third line, if the detector accumulates evidence.
 *
 * @param {{client: string, figures: any[]}} props figures of rounds with the client's part, in order
 */
export function Evidence({ client, figures }) {
  const [scores, apart, sizes] = useMemo(() => {
    const shown = figures.slice(-SHOWN);
    const rounds = shown.map((one) => one.round);
    const verdicts = shown.map((one) => one.client.verdict || {});
    const differs = verdicts.some(({ evidence, score }) => evidence && evidence !== score);
    const scores = [rounds, verdicts.map((one) => one.score ?? null), verdicts.map((one) => one.threshold ?? null)];
    if (differs) scores.push(verdicts.map((one) => one.evidence ?? null));
    return [scores, differs, [rounds, shown.map((one) => one.client.norm), shown.map((one) => one.norm_median)]];
  }, [figures]);
  return html`
    <${Chart} height=${120} label=${`Score of ${client} and its limit, by round`} data=${scores} format=${number} lines=${apart ? [SCORE, LIMIT, EVIDENCE] : [SCORE, LIMIT]} />
    <${Chart} height=${120} label=${`Norms of the updates of ${client} and the median, by round`} data=${sizes} format=${number}
      lines=${[
        { label: "norm", colour: "--series-2", width: 2 },
        { label: "median of all", colour: "--series-4", dash: [5, 4] },
      ]} />
  `;
}
