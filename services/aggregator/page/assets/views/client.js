/** One client over all runs: liveness, token, verdicts, and whether it is barred. */

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get_json } from "../api.js";
import { actions } from "../actions.js";
import { ActionButton } from "../action_dialog.js";
import { format_relative_time, format_time } from "../format.js";
import { useFetch } from "../hooks.js";
import { href } from "../router.js";
import { DecisionLabel, ErrorMessage, RunState, SummaryItem } from "../widgets.js";
import { token_status } from "./clients.js";
import { EvidenceCharts, MAX_ROUNDS_SHOWN } from "./evidence_charts.js";
import { member_state } from "./run_members.js";

/** The view shows the newest runs, and the newest rounds of each run. */
const MAX_RUNS = 20;
const MAX_ROUNDS_PER_RUN = 200;
const REFRESH_INTERVAL_MS = 5000;

/**
 * A client's part in one run: its entry among the run's members, and the summaries of the run's newest rounds.
 *
 * @typedef {{run: any, member: any, summaries: any[]}} Participation
 */

/** @param {{client_id: string}} props */
export function ClientView({ client_id }) {
  const { data, error, refresh } = useFetch(`/v1/clients/${encodeURIComponent(client_id)}`, 5000);
  const participations = useParticipations(client_id);
  const charted_run = useMemo(
    () => participations.map(({ run, summaries }) => ({ run: run.run, summaries: summaries.filter((summary) => summary.client.verdict) })).find(({ summaries }) => summaries.length),
    [participations],
  );
  return html`
    <div class="heading">
      <h1 class="id">${client_id}</h1>
      ${data && (data.barred ? html`<span class="alarm">barred from the federation</span>` : data.online ? html`<span class="good">online</span>` : html`<span class="muted">offline</span>`)}
      <div class="actions">
        ${data && (data.barred ? html`<${ActionButton} action=${actions.readmit_client(client_id)} on_success=${refresh} />` : html`<${ActionButton} action=${actions.bar_client(client_id)} on_success=${refresh} />`)}
        ${data && data.token_expires_at !== null && html`<${ActionButton} action=${actions.revoke_token(client_id)} on_success=${refresh} />`}
      </div>
    </div>
    <${ErrorMessage} error=${error} />
    ${data &&
    html`<dl class="facts">
      <${SummaryItem} name="Last request">${format_relative_time(data.last_seen)}<//>
      <${SummaryItem} name="Software">${data.software || "–"}<//>
      <${SummaryItem} name="Registered">${format_time(data.registered_at)}<//>
      <${SummaryItem} name="Token">${token_status(data)}<//>
      <${SummaryItem} name="Cap on claimed samples">${data.sample_cap ?? "set by each run"}<//>
      <${SummaryItem} name="Labels">${Object.entries(data.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "–"}<//>
      ${data.barred && html`<${SummaryItem} name="Barred because">${String(data.barred.reason || "")}<//>`}
    </dl>`}
    <section class="panel" aria-labelledby="client-runs">
      <h2 id="client-runs">Runs <small class="muted">the newest ${MAX_RUNS}, each with the verdicts of its newest ${MAX_ROUNDS_PER_RUN} rounds</small></h2>
      <div class="table-box" tabindex="0" role="region" aria-label="Runs of the client">
        <table class="stacks">
          <thead><tr><th scope="col">Run</th><th scope="col">State</th><th scope="col">Standing</th><th scope="col">Why</th><th scope="col">Verdicts</th></tr></thead>
          <tbody>
            ${participations.map(
              ({ run, member, summaries }) => html`<tr key=${run.run}>
                <th scope="row"><a href=${href("runs", run.run)}>${run.run}</a></th>
                <td><${RunState} state=${run.state} /></td>
                <td>${member_state(member)}</td>
                <td class="why">${String((member.barred || member.eviction || member.quarantine || {}).reason || member.reason || "")}</td>
                <td>${count_decisions(summaries).map(([name, count]) => html`<span key=${name} class="count"><${DecisionLabel} name=${name} /> ${count}</span>`)}</td>
              </tr>`,
            )}
          </tbody>
        </table>
        ${!participations.length && html`<p class="empty">The client did not take part in these runs.</p>`}
      </div>
    </section>
    ${charted_run &&
    html`<section class="panel" aria-labelledby="client-evidence">
      <h2 id="client-evidence">Evidence <small class="muted">in run ${charted_run.run}: the newest rounds with a verdict, at most ${MAX_ROUNDS_SHOWN}</small></h2>
      <div class="columns"><${EvidenceCharts} client_id=${client_id} summaries=${charted_run.summaries} /></div>
    </section>`}
  `;
}

/**
 * The client's participations in the newest runs, newest first.
 *
 * @param {string} client_id
 */
function useParticipations(client_id) {
  const [participations, set_participations] = useState(/** @type {Participation[]} */ ([]));
  useEffect(() => {
    const abort_controller = new AbortController();
    let timer = 0;
    /** @type {Map<string, Participation | null>} participations in ended runs, which no longer change; null for no member */
    const ended_participations = new Map();
    const load_participation = async (/** @type {any} */ run) => {
      const [member] = await get_json(`/v1/runs/${run.run}/members?client=${encodeURIComponent(client_id)}`, abort_controller.signal);
      if (!member) return null;
      const first_round = Math.max(0, run.round - MAX_ROUNDS_PER_RUN + 1);
      const summaries = await get_json(`/v1/runs/${run.run}/figures?from=${first_round}&limit=${MAX_ROUNDS_PER_RUN}&client=${encodeURIComponent(client_id)}`, abort_controller.signal);
      return { run, member, summaries };
    };
    const load_participations = async () => {
      /** @type {Participation[]} */
      const participations = [];
      for (const run of (await get_json(`/v1/runs?limit=${MAX_RUNS}`, abort_controller.signal)).reverse()) {
        let participation = ended_participations.get(run.run);
        if (participation === undefined) participation = await load_participation(run).catch(() => undefined);
        if (run.ended_at && participation !== undefined) ended_participations.set(run.run, participation);
        if (participation) participations.push(participation);
      }
      if (!abort_controller.signal.aborted) set_participations(participations);
    };
    const poll = () =>
      load_participations()
        .catch(() => {})
        .finally(() => {
          if (!abort_controller.signal.aborted) timer = setTimeout(poll, REFRESH_INTERVAL_MS);
        });
    set_participations([]);
    poll();
    return () => {
      abort_controller.abort();
      clearTimeout(timer);
    };
  }, [client_id]);
  return participations;
}

/**
 * How often each decision was made.
 *
 * @param {any[]} summaries
 */
function count_decisions(summaries) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const { client } of summaries) {
    const name = client.verdict ? client.verdict.decision : client.late ? "late" : client.absent ? "absent" : "";
    if (name) counts[name] = (counts[name] || 0) + 1;
  }
  return Object.entries(counts);
}
