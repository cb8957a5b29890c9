/** Charts of one client over rounds: the detector's score with its limit, and the norms of the updates. */

import { html, useMemo } from "../vendor/preact.js";
import { Chart } from "../charts.js";
import { format_number } from "../format.js";
import { useFetch } from "../hooks.js";

/** Maximum number of rounds in a chart; the charts show the newest rounds. */
export const MAX_ROUNDS_SHOWN = 60;
const SCORE_LINE = { label: "score", colour: "--series-1", width: 2 };
const LIMIT_LINE = { label: "limit", colour: "--evicted", dash: [5, 4] };
const EVIDENCE_LINE = { label: "evidence", colour: "--series-3" };

/**
 * Charts of the rounds up to `round`.
 *
 * @param {{run_id: string, client_id: string, round: number}} props
 */
export function RecentEvidence({ run_id, client_id, round }) {
  const first_round = Math.max(0, round - MAX_ROUNDS_SHOWN + 1);
  const { data } = useFetch(`/v1/runs/${run_id}/figures?from=${first_round}&limit=${MAX_ROUNDS_SHOWN}&client=${encodeURIComponent(client_id)}`);
  return data && data.length ? html`<${EvidenceCharts} client_id=${client_id} summaries=${data} />` : null;
}

/**
 * A detector's score is either its evidence or the measurement of one round. If the score is a
 * measurement and the detector accumulates evidence, the chart also shows the evidence.
 *
 * @param {{client_id: string, summaries: any[]}} props the summaries must cover this client; oldest round first
 */
export function EvidenceCharts({ client_id, summaries }) {
  const [score_data, evidence_differs, norm_data] = useMemo(() => {
    const recent = summaries.slice(-MAX_ROUNDS_SHOWN);
    const rounds = recent.map((summary) => summary.round);
    const verdicts = recent.map((summary) => summary.client.verdict || {});
    const evidence_differs = verdicts.some(({ evidence, score }) => evidence && evidence !== score);
    const score_data = [rounds, verdicts.map((verdict) => verdict.score ?? null), verdicts.map((verdict) => verdict.threshold ?? null)];
    if (evidence_differs) score_data.push(verdicts.map((verdict) => verdict.evidence ?? null));
    return [score_data, evidence_differs, [rounds, recent.map((summary) => summary.client.norm), recent.map((summary) => summary.norm_median)]];
  }, [summaries]);
  return html`
    <${Chart} height=${120} label=${`Score of ${client_id} and its limit, by round`} data=${score_data} format=${format_number} lines=${evidence_differs ? [SCORE_LINE, LIMIT_LINE, EVIDENCE_LINE] : [SCORE_LINE, LIMIT_LINE]} />
    <${Chart} height=${120} label=${`Norms of the updates of ${client_id} and the median, by round`} data=${norm_data} format=${format_number}
      lines=${[
        { label: "norm", colour: "--series-2", width: 2 },
        { label: "median of all", colour: "--series-4", dash: [5, 4] },
      ]} />
  `;
}
