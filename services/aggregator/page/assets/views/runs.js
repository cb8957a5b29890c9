/** The view of all runs: their states and progress, a comparison, and the form that submits a run. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { get_json } from "../api.js";
import { actions } from "../actions.js";
import { ActionButton } from "../action_dialog.js";
import { format_duration, format_percent, format_time } from "../format.js";
import { useFetch } from "../hooks.js";
import { href } from "../router.js";
import { ErrorMessage, ProgressBar, RunState } from "../widgets.js";
import { RunComparison } from "./run_comparison.js";
import { SubmitForm } from "./submit_form.js";

const REFRESH_INTERVAL_MS = 3000;
/** The view shows the accuracies of at most this many runs. */
const MAX_RUNS_WITH_ACCURACY = 50;
/** Maximum number of runs in one response. */
const PAGE_SIZE = 100;
const ACTIVE_STATES = ["running", "paused", "stopping"];

export function RunsView() {
  const [before_run_id, set_before_run_id] = useState("");
  const { data, error, refresh } = useFetch(`/v1/runs?limit=${PAGE_SIZE}${before_run_id && `&before=${before_run_id}`}`, REFRESH_INTERVAL_MS);
  const [selected, set_selected] = useState(/** @type {string[]} */ ([]));
  const runs = data ? [...data].reverse() : [];
  const accuracies = useAccuracies(runs.slice(0, MAX_RUNS_WITH_ACCURACY));
  const toggle_selection = (/** @type {string} */ run_id) => set_selected(selected.includes(run_id) ? selected.filter((selected_run) => selected_run !== run_id) : [...selected, run_id]);
  return html`
    <div class="heading">
      <h1>Runs</h1>
      <p class="muted">${data ? count_states(runs, before_run_id) : "Loading…"}</p>
    </div>
    <${ErrorMessage} error=${error} />
    <div class="table-box" tabindex="0" role="region" aria-label="Runs">
      <table class="stacks">
        <thead>
          <tr>
            <th scope="col"><span class="unseen">Compare</span></th>
            <th scope="col">Run</th>
            <th scope="col">State</th>
            <th scope="col">Rounds</th>
            <th scope="col" class="number">Accuracy</th>
            <th scope="col" class="number">Clients</th>
            <th scope="col" class="number">Evicted</th>
            <th scope="col">Submitted</th>
            <th scope="col" class="number">Time</th>
            <th scope="col"><span class="unseen">Actions</span></th>
          </tr>
        </thead>
        <tbody>
          ${runs.map(
            (run) => html`<tr key=${run.run}>
              <td><input type="checkbox" aria-label=${`Compare ${run.run}`} checked=${selected.includes(run.run)} onChange=${() => toggle_selection(run.run)} /></td>
              <th scope="row"><a href=${href("runs", run.run)}>${run.run}</a></th>
              <td><${RunState} state=${run.state} />${(run.waits_for || run.reason) && html` <span class="muted">${run.waits_for ? `waits for ${run.waits_for}` : run.reason}</span>`}</td>
              <td class="progress"><${ProgressBar} total=${run.rounds} completed=${count_ended_rounds(run)} label=${`Rounds of ${run.run}`} /><span>${count_ended_rounds(run)} / ${run.rounds}</span></td>
              <td data-label="Accuracy" class="number">${format_percent(accuracies[run.run])}</td>
              <td data-label="Clients" class="number">${run.clients}</td>
              <td data-label="Evicted" class=${`number ${run.evicted ? "alarm" : ""}`}>${run.evicted}</td>
              <td data-label="Submitted">${format_time(run.submitted_at)} <span class="muted">by ${run.submitted_by}</span></td>
              <td data-label="Time" class="number">${run.started_at ? format_duration((run.ended_at || Date.now() / 1000) - run.started_at) : "–"}</td>
              <td class="actions">
                ${run.state === "queued" && html`<${ActionButton} action=${actions.stop_run(run.run)} label="Cancel" on_success=${refresh} />`}
                ${!ACTIVE_STATES.includes(run.state) && html`<${ActionButton} action=${actions.delete_run(run.run)} on_success=${refresh} />`}
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
      ${data && !runs.length && html`<p class="empty">${before_run_id ? "There are no older runs." : "The federation has no runs yet."}</p>`}
    </div>
    <p class="buttons">
      ${before_run_id && html`<button type="button" onClick=${() => set_before_run_id("")}>Newest runs</button>`}
      ${runs.length === PAGE_SIZE && html`<button type="button" onClick=${() => set_before_run_id(runs[PAGE_SIZE - 1].run)}>Older runs</button>`}
    </p>
    ${selected.length > 0 && html`<${RunComparison} runs=${runs.filter((run) => selected.includes(run.run))} />`}
    <${SubmitForm} runs=${runs} on_submitted=${refresh} />
  `;
}

/**
 * How many runs are in progress, queued and ended, as text.
 *
 * @param {any[]} runs
 * @param {string} before_run_id the run that was submitted after these runs; "" if these runs are the newest
 */
function count_states(runs, before_run_id) {
  const active = runs.filter((run) => ACTIVE_STATES.includes(run.state)).length;
  const queued = runs.filter((run) => run.state === "queued").length;
  return `${active} in progress, ${queued} queued, ${runs.length - active - queued} ended${before_run_id || runs.length === PAGE_SIZE ? " of the runs below" : ""}`;
}

/**
 * The number of a run's rounds that have ended.
 *
 * @param {any} run
 */
export function count_ended_rounds(run) {
  return run.state === "finished" ? Math.min(run.rounds, run.round + 1) : run.round;
}

/**
 * The accuracy of each run's received models after its newest round.
 *
 * @param {any[]} runs
 */
function useAccuracies(runs) {
  const [accuracies, set_accuracies] = useState(/** @type {Record<string, number | undefined>} */ ({}));
  const run_rounds = runs.filter((run) => run.started_at).map((run) => `${run.run} ${run.round}`);
  useEffect(() => {
    const abort_controller = new AbortController();
    const load_accuracies = async () => {
      for (const run_round of run_rounds) {
        const [run_id, round] = run_round.split(" ");
        const summaries = await get_json(`/v1/runs/${run_id}/figures?from=${Math.max(0, Number(round) - 1)}&limit=2`, abort_controller.signal).catch(() => []);
        const recent_accuracies = summaries.map((/** @type {any} */ summary) => summary.accuracies.customized).filter((/** @type {any} */ accuracy) => accuracy !== undefined);
        if (abort_controller.signal.aborted) return;
        if (recent_accuracies.length) set_accuracies((previous) => ({ ...previous, [run_id]: recent_accuracies[recent_accuracies.length - 1] }));
      }
    };
    load_accuracies();
    return () => abort_controller.abort();
  }, [run_rounds.join()]);
  return accuracies;
}
