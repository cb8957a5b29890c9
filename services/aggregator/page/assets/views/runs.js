/** All runs: the queue, each run's progress, a comparison, and the form for submissions. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { acts } from "../acts.js";
import { ActButton } from "../dialog.js";
import { clock, duration, percent } from "../format.js";
import { useAnswer } from "../hooks.js";
import { href } from "../router.js";
import { Bar, Failure, State } from "../widgets.js";
import { Compare } from "./compare.js";
import { Submit } from "./submit.js";

const EVERY = 3000;
/** Number of runs whose accuracy is shown. */
const MEASURED = 50;
/** Number of runs in one response. */
const PAGE = 100;
const LIVE = ["running", "paused", "stopping"];

export function RunsView() {
  const [before, page_to] = useState("");
  const { data, error, again } = useAnswer(`/v1/runs?limit=${PAGE}${before && `&before=${before}`}`, EVERY);
  const [chosen, choose] = useState(/** @type {string[]} */ ([]));
  const runs = data ? [...data].reverse() : [];
  const accuracies = useAccuracies(runs.slice(0, MEASURED));
  const toggle = (/** @type {string} */ run) => choose(chosen.includes(run) ? chosen.filter((one) => one !== run) : [...chosen, run]);
  return html`
    <div class="heading">
      <h1>Runs</h1>
      <p class="muted">${data ? summary(runs, before) : "Loading…"}</p>
    </div>
    <${Failure} error=${error} />
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
              <td><input type="checkbox" aria-label=${`Compare ${run.run}`} checked=${chosen.includes(run.run)} onChange=${() => toggle(run.run)} /></td>
              <th scope="row"><a href=${href("runs", run.run)}>${run.run}</a></th>
              <td><${State} state=${run.state} />${(run.waits_for || run.reason) && html` <span class="muted">${run.waits_for ? `waits for ${run.waits_for}` : run.reason}</span>`}</td>
              <td class="progress"><${Bar} of=${run.rounds} done=${ended(run)} label=${`Rounds of ${run.run}`} /><span>${ended(run)} / ${run.rounds}</span></td>
              <td data-label="Accuracy" class="number">${percent(accuracies[run.run])}</td>
              <td data-label="Clients" class="number">${run.clients}</td>
              <td data-label="Evicted" class=${`number ${run.evicted ? "alarm" : ""}`}>${run.evicted}</td>
              <td data-label="Submitted">${clock(run.submitted_at)} <span class="muted">by ${run.submitted_by}</span></td>
              <td data-label="Time" class="number">${run.started_at ? duration((run.ended_at || Date.now() / 1000) - run.started_at) : "–"}</td>
              <td class="actions">
                ${run.state === "queued" && html`<${ActButton} act=${acts.stop(run.run)} label="Cancel" done=${again} />`}
                ${!LIVE.includes(run.state) && html`<${ActButton} act=${acts.remove(run.run)} done=${again} />`}
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
      ${data && !runs.length && html`<p class="empty">${before ? "There are no older runs." : "The federation has no runs yet."}</p>`}
    </div>
    <p class="buttons">
      ${before && html`<button type="button" onClick=${() => page_to("")}>Newest runs</button>`}
      ${runs.length === PAGE && html`<button type="button" onClick=${() => page_to(runs[PAGE - 1].run)}>Older runs</button>`}
    </p>
    ${chosen.length > 0 && html`<${Compare} runs=${runs.filter((run) => chosen.includes(run.run))} />`}
    <${Submit} runs=${runs} done=${again} />
  `;
}

/**
 * @param {any[]} runs
 * @param {string} before the run that follows them; "" if they are the newest
 */
function summary(runs, before) {
  const live = runs.filter((run) => LIVE.includes(run.state)).length;
  const queued = runs.filter((run) => run.state === "queued").length;
  return `${live} in progress, ${queued} queued, ${runs.length - live - queued} ended${before || runs.length === PAGE ? " of the runs below" : ""}`;
}

/**
 * Number of rounds that have ended.
 *
 * @param {any} run
 */
export function ended(run) {
  return run.state === "finished" ? Math.min(run.rounds, run.round + 1) : run.round;
}

/**
 * The accuracy of each run's received models after its newest round.
 *
 * @param {any[]} runs
 */
function useAccuracies(runs) {
  const [found, set] = useState(/** @type {Record<string, number | undefined>} */ ({}));
  const asked = runs.filter((run) => run.started_at).map((run) => `${run.run} ${run.round}`);
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      for (const line of asked) {
        const [run, round] = line.split(" ");
        const figures = await get(`/v1/runs/${run}/figures?from=${Math.max(0, Number(round) - 1)}&limit=2`, abort.signal).catch(() => []);
        const shares = figures.map((/** @type {any} */ one) => one.accuracies.customized).filter((/** @type {any} */ share) => share !== undefined);
        if (abort.signal.aborted) return;
        if (shares.length) set((old) => ({ ...old, [run]: shares[shares.length - 1] }));
      }
    };
    ask();
    return () => abort.abort();
  }, [asked.join()]);
  return found;
}
