/** The form for submitting an experiment: a TOML file, or the tables of an earlier run. */

import { html, useState } from "../vendor/preact.js";
import { get, send } from "../api.js";
import { size } from "../format.js";
import { session } from "../session.js";

/** @param {{runs: any[], done: () => void}} props */
export function Submit({ runs, done }) {
  const [text, write] = useState("");
  const [name, call] = useState("");
  const [reason, explain] = useState("");
  const [told, tell] = useState({ text: "", error: "" });
  if (!session.acts) return null;
  const copy = async (/** @type {any} */ event) => {
    if (!event.target.value) return;
    write(JSON.stringify(await get(`/v1/runs/${event.target.value}/experiment`), null, 2));
  };
  const attempt = (/** @type {(experiment: any) => Promise<string>} */ work) => async (/** @type {Event} */ event) => {
    event.preventDefault();
    tell({ text: "", error: "" });
    try {
      tell({ text: await work(text.trimStart().startsWith("{") ? JSON.parse(text) : text), error: "" });
    } catch (error) {
      tell({ text: "", error: error instanceof Error ? error.message : String(error) });
    }
  };
  const check = attempt(async (experiment) => {
    const found = await send("POST", "/v1/runs/check", { experiment });
    return (
      `It can run: ${found.parameters} parameters, up to ${found.clients} updates in a round, ` +
      `${size(found.memory_bytes)} of memory, ${size(found.disk_bytes)} on disk, ` +
      `${size(found.down_bytes)} received and ${size(found.up_bytes)} sent by a client in a round.`
    );
  });
  const submit = attempt(async (experiment) => {
    const info = await send("POST", "/v1/runs", { experiment, ...(name && { name }), ...(reason && { reason }) });
    done();
    return `Submitted as ${info.run}.`;
  });
  return html`<details class="panel">
    <summary>Submit a run</summary>
    <form class="submit" onSubmit=${submit}>
      <div class="fields">
        <p>
          <label for="submit-copy">Start from the experiment of</label>
          <select id="submit-copy" onChange=${copy}>
            <option value="">no run</option>
            ${runs.map((run) => html`<option key=${run.run} value=${run.run}>${run.run}</option>`)}
          </select>
        </p>
        <p>
          <label for="submit-name">Name of the run</label>
          <input id="submit-name" value=${name} pattern="[a-z0-9][a-z0-9\\-]{0,47}" placeholder="the experiment's name"
            onInput=${(/** @type {any} */ event) => call(event.target.value)} />
        </p>
        <p>
          <label for="submit-reason">Reason</label>
          <input id="submit-reason" value=${reason} maxlength="500" onInput=${(/** @type {any} */ event) => explain(event.target.value)} />
        </p>
      </div>
      <label for="submit-text">Experiment, as TOML or JSON</label>
      <textarea id="submit-text" class="code" rows="14" required spellcheck="false" value=${text}
        onInput=${(/** @type {any} */ event) => write(event.target.value)}></textarea>
      <p role="status" class=${told.error ? "error" : "notice"} hidden=${!told.error && !told.text}>${told.error || told.text}</p>
      <div class="buttons">
        <button type="button" onClick=${check}>Check</button>
        <button type="submit" class="primary">Submit</button>
      </div>
    </form>
  </details>`;
}
