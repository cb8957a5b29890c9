/** The current state of a run, and the buttons that control the run. */

import { html } from "../vendor/preact.js";
import { MODES, acts } from "../acts.js";
import { ActButton, propose } from "../dialog.js";
import { clock, duration, relative } from "../format.js";
import { useAnswer, useNow, useTopics } from "../hooks.js";
import { href } from "../router.js";
import { session } from "../session.js";
import { Bar, Fact, Failure, State } from "../widgets.js";

/** @param {{model: import("../run_model.js").RunModel}} props */
export function Now({ model }) {
  useTopics(model, "status", "standing");
  useNow();
  const { info, status } = model;
  if (!info) return html`<div class="heading"><h1>${model.run}</h1><p class="muted">${model.error ? "" : "Loading…"}</p></div>
    <${Failure} error=${model.error && `${model.error}${model.refused ? "" : " The page keeps trying."}`} />`;
  const again = () => model.touch("status", "standing");
  return html`
    <div class="heading">
      <h1>${info.run}</h1>
      <${State} state=${info.state} />
      <p class="muted">${line(info)}</p>
      <div class="actions">
        ${info.state === "running" && html`<${ActButton} act=${acts.pause(info.run)} done=${again} />`}
        ${info.state === "paused" && html`<${ActButton} act=${acts.resume(info.run)} done=${again} />`}
        ${!model.over && info.state !== "stopping" && html`<${ActButton} act=${acts.stop(info.run)} done=${again} />`}
      </div>
    </div>
    <${Failure} error=${model.error} />
    ${status && (status.warnings || []).map((/** @type {string} */ text) => html`<p class="warning" key=${text}>${text}</p>`)}
    ${status && html`<${Facts} model=${model} again=${again} />`}
  `;
}

/** @param {any} info */
function line(info) {
  if (info.state === "queued") return `waits for ${info.waits_for}`;
  if (info.reason) return info.reason;
  if (info.ended_at) return `ended ${clock(info.ended_at)}, after ${duration(info.ended_at - info.started_at)}`;
  if (info.waits_for) return `waits for ${info.waits_for}`;
  return info.started_at ? `started ${clock(info.started_at)} by ${info.submitted_by}` : "";
}

/** @param {{model: import("../run_model.js").RunModel, again: () => void}} props */
function Facts({ model, again }) {
  const { status } = model;
  const wanted = status.selected.length || status.clients;
  const posted = status.received.length;
  const done = status.round + (model.over ? 1 : 0);
  return html`<dl class="facts">
    <${Fact} name="Round">
      ${status.round}
      <${Bar} of=${status.rounds} done=${done} label="Rounds" />
      <small class="muted">${done} of ${status.rounds} ended</small>
      ${done > 0 && html`<small><a href=${href("runs", model.run, "rounds", done - 1)}>Newest: round ${done - 1}</a></small>`}
    <//>
    <${Fact} name="Phase">${status.phase}<small class="muted">${status.deadline && !model.over ? `deadline ${relative(status.deadline)}` : ""}</small><//>
    <${Fact} name="Posted">
      ${posted}<span class="muted"> of ${wanted}</span>
      <${Bar} of=${wanted} done=${posted} label="Clients that have posted" />
    <//>
    <${Fact} name="Clients online">${status.online}<span class="muted"> of ${status.clients}</span><//>
    <${Fact} name="Barred">
      <span class=${status.evicted.length ? "alarm" : ""}>${status.evicted.length}</span><span class="muted"> evicted</span>
      <small class="muted">${status.quarantined.length - status.proposed.length} quarantined, ${status.proposed.length} proposed</small>
    <//>
    <${Fact} name="Mode of evictions">
      ${session.acts && !model.over
        ? html`<select aria-label="Mode of evictions" value=${status.mode}
            onChange=${(/** @type {any} */ event) => {
              const mode = event.target.value;
              event.target.value = status.mode;
              propose(acts.mode(model.run, mode), again);
            }}>
            ${Object.keys(MODES).map((mode) => html`<option key=${mode} value=${mode}>${mode}</option>`)}
          </select>`
        : status.mode}
    <//>
    <${Health} />
  </dl>`;
}

/** The lease's holder, and whether Redis and the blobs work. */
function Health() {
  const { data, error } = useAnswer("/v1/health", 5000);
  const health = data || {};
  const fault = error || health.redis || health.blobs;
  return html`
    <${Fact} name="Worker" title="the worker that holds the lease">${data ? health.worker || html`<span class="alarm">none</span>` : "–"}<//>
    <${Fact} name="Redis, blobs">
      ${data || error ? (fault ? html`<span class="alarm">${fault}</span>` : html`<span class="good">both work</span>`) : "–"}
    <//>
  `;
}

