/** One client over all runs: liveness, token, verdicts, and whether it is barred. */

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { acts } from "../acts.js";
import { ActButton } from "../dialog.js";
import { clock, relative } from "../format.js";
import { useAnswer } from "../hooks.js";
import { href } from "../router.js";
import { DecisionMark, Fact, Failure, State } from "../widgets.js";
import { token } from "./clients.js";
import { Evidence } from "./evidence.js";
import { standing } from "./members.js";

/** The numbers of newest runs, and of newest rounds per run, that are shown. */
const RUNS = 20;
const ROUNDS = 200;
const EVERY = 5000;

/** @typedef {{run: any, member: any, figures: any[]}} Part */

/** @param {{client: string}} props */
export function ClientView({ client }) {
  const { data, error, again } = useAnswer(`/v1/clients/${encodeURIComponent(client)}`, 5000);
  const parts = useParts(client);
  const charted = useMemo(
    () => parts.map((one) => ({ run: one.run.run, figures: one.figures.filter((figures) => figures.client.verdict) })).find((one) => one.figures.length),
    [parts],
  );
  return html`
    <div class="heading">
      <h1 class="id">${client}</h1>
      ${data && (data.barred ? html`<span class="alarm">barred from the federation</span>` : data.online ? html`<span class="good">online</span>` : html`<span class="muted">offline</span>`)}
      <div class="actions">
        ${data && (data.barred ? html`<${ActButton} act=${acts.readmit(client)} done=${again} />` : html`<${ActButton} act=${acts.bar(client)} done=${again} />`)}
        ${data && data.token_expires_at !== null && html`<${ActButton} act=${acts.revoke(client)} done=${again} />`}
      </div>
    </div>
    <${Failure} error=${error} />
    ${data &&
    html`<dl class="facts">
      <${Fact} name="Last request">${relative(data.last_seen)}<//>
      <${Fact} name="Software">${data.software || "–"}<//>
      <${Fact} name="Registered">${clock(data.registered_at)}<//>
      <${Fact} name="Token">${token(data)}<//>
      <${Fact} name="Cap on claimed samples">${data.sample_cap ?? "set by each run"}<//>
      <${Fact} name="Labels">${Object.entries(data.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "–"}<//>
      ${data.barred && html`<${Fact} name="Barred because">${String(data.barred.reason || "")}<//>`}
    </dl>`}
    <section class="panel" aria-labelledby="client-runs">
      <h2 id="client-runs">Runs <small class="muted">the newest ${RUNS}</small></h2>
      <div class="table-box" tabindex="0" role="region" aria-label="Runs of the client">
        <table class="stacks">
          <thead><tr><th scope="col">Run</th><th scope="col">State</th><th scope="col">Standing</th><th scope="col">Why</th><th scope="col">Verdicts</th></tr></thead>
          <tbody>
            ${parts.map(
              ({ run, member, figures }) => html`<tr key=${run.run}>
                <th scope="row"><a href=${href("runs", run.run)}>${run.run}</a></th>
                <td><${State} state=${run.state} /></td>
                <td>${standing(member)}</td>
                <td class="why">${String((member.eviction || member.quarantine || {}).reason || member.reason || "")}</td>
                <td>${counts(figures).map(([name, count]) => html`<span key=${name} class="count"><${DecisionMark} name=${name} /> ${count}</span>`)}</td>
              </tr>`,
            )}
          </tbody>
        </table>
        ${!parts.length && html`<p class="empty">The client has no part in these runs.</p>`}
      </div>
    </section>
    ${charted &&
    html`<section class="panel" aria-labelledby="client-evidence">
      <h2 id="client-evidence">Evidence <small class="muted">in ${charted.run}</small></h2>
      <div class="columns"><${Evidence} client=${client} figures=${charted.figures} /></div>
    </section>`}
  `;
}

/**
 * The client's parts in the newest runs.
 *
 * @param {string} client
 */
function useParts(client) {
  const [parts, set] = useState(/** @type {Part[]} */ ([]));
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    /** @type {Map<string, Part | null>} */
    const over = new Map();
    const part = async (/** @type {any} */ run) => {
      const [member] = await get(`/v1/runs/${run.run}/members?client=${encodeURIComponent(client)}`, abort.signal);
      if (!member) return null;
      const first = Math.max(0, run.round - ROUNDS + 1);
      const figures = await get(`/v1/runs/${run.run}/figures?from=${first}&limit=${ROUNDS}&client=${encodeURIComponent(client)}`, abort.signal);
      return { run, member, figures };
    };
    const load = async () => {
      /** @type {Part[]} */
      const found = [];
      for (const run of (await get(`/v1/runs?limit=${RUNS}`, abort.signal)).reverse()) {
        let one = over.get(run.run);
        if (one === undefined) one = await part(run).catch(() => undefined);
        if (run.ended_at && one !== undefined) over.set(run.run, one);
        if (one) found.push(one);
      }
      if (!abort.signal.aborted) set(found);
    };
    const follow = () =>
      load()
        .catch(() => {})
        .finally(() => {
          if (!abort.signal.aborted) timer = setTimeout(follow, EVERY);
        });
    set([]);
    follow();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [client]);
  return parts;
}

/**
 * How often each decision was made.
 *
 * @param {any[]} figures
 */
function counts(figures) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const { client } of figures) {
    const name = client.verdict ? client.verdict.decision : client.late ? "late" : client.absent ? "absent" : "";
    if (name) found[name] = (found[name] || 0) + 1;
  }
  return Object.entries(found);
}
