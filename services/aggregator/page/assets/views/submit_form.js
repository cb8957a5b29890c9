/** The form that submits an experiment as a run. The experiment may be copied from an earlier run. */

import { html, useState } from "../vendor/preact.js";
import { get_json, send_json } from "../api.js";
import { normalize_reason } from "../actions.js";
import { format_bytes } from "../format.js";
import { RunSubmission } from "../run_submission.js";
import { session } from "../session.js";

/** @param {{runs: any[], on_submitted: () => void}} props */
export function SubmitForm({ runs, on_submitted }) {
  const [text, set_text] = useState("");
  const [name, set_name] = useState("");
  const [reason, set_reason] = useState("");
  const [result, set_result] = useState({ message: "", error: "", is_pending: false });
  const [submission] = useState(() => new RunSubmission());
  if (!session.is_operator) return null;
  /** Returns an event handler that performs `operation`, and shows the resulting message or the error. */
  const create_handler = (/** @type {(event: any) => Promise<string>} */ operation) => async (/** @type {Event} */ event) => {
    event.preventDefault();
    set_result({ message: "", error: "", is_pending: true });
    try {
      set_result({ message: await operation(event), error: "", is_pending: false });
    } catch (error) {
      set_result({ message: "", error: error instanceof Error ? error.message : String(error), is_pending: false });
    }
  };
  const parse_experiment = () => (text.trimStart().startsWith("{") ? JSON.parse(text) : text);
  const copy_experiment = create_handler(async (event) => {
    if (event.target.value) set_text(JSON.stringify(await get_json(`/v1/runs/${event.target.value}/experiment`), null, 2));
    return "";
  });
  const check = create_handler(async () => {
    const estimate = await send_json("POST", "/v1/runs/check", { experiment: parse_experiment() });
    return (
      `The experiment can run: ${estimate.parameters} parameters, up to ${estimate.clients} updates in a round, ` +
      `${format_bytes(estimate.memory_bytes)} of memory, ${format_bytes(estimate.disk_bytes)} on disk, ` +
      `${format_bytes(estimate.down_bytes)} received and ${format_bytes(estimate.up_bytes)} sent by a client in a round.`
    );
  });
  const submit = create_handler(async () => {
    const one_line_reason = normalize_reason(reason);
    const { run_id, is_repetition } = await submission.submit({ experiment: parse_experiment(), ...(name && { name }), ...(one_line_reason && { reason: one_line_reason }) });
    on_submitted();
    if (is_repetition) return `Already submitted as ${run_id}. To submit another run, change the name, the reason or the experiment.`;
    return `Submitted as ${run_id}.`;
  });
  return html`<details class="panel">
    <summary>Submit a run</summary>
    <form class="submit" onSubmit=${submit}>
      <div class="fields">
        <p>
          <label for="submit-copy">Start from the experiment of</label>
          <select id="submit-copy" onChange=${copy_experiment}>
            <option value="">no run</option>
            ${runs.map((run) => html`<option key=${run.run} value=${run.run}>${run.run}</option>`)}
          </select>
        </p>
        <p>
          <label for="submit-name">Name of the run</label>
          <input id="submit-name" value=${name} pattern="[a-z0-9][a-z0-9\\-]{0,47}" placeholder="the experiment's name"
            onInput=${(/** @type {any} */ event) => set_name(event.target.value)} />
        </p>
        <p>
          <label for="submit-reason">Reason</label>
          <input id="submit-reason" value=${reason} maxlength="500" onInput=${(/** @type {any} */ event) => set_reason(event.target.value)} />
        </p>
      </div>
      <label for="submit-text">Experiment, as TOML or JSON</label>
      <textarea id="submit-text" class="code" rows="14" required spellcheck="false" value=${text}
        onInput=${(/** @type {any} */ event) => set_text(event.target.value)}></textarea>
      <p role="status" class=${result.error ? "error" : "notice"} hidden=${!result.error && !result.message}>${result.error || result.message}</p>
      <div class="buttons">
        <button type="button" onClick=${check} disabled=${result.is_pending}>Check</button>
        <button type="submit" class="primary" disabled=${result.is_pending}>Submit</button>
      </div>
    </form>
  </details>`;
}
