/** One run, live: its state, the verdicts on its clients, and its events. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { useTopics } from "../hooks.js";
import { RunModel } from "../run_model.js";
import { Accuracy, Norms } from "./run_charts.js";
import { EventList } from "./event_list.js";
import { Members } from "./members.js";
import { Now } from "./now.js";
import { Proposals } from "./proposals.js";
import { RunAudit } from "./run_audit.js";
import { Verdicts } from "./verdicts.js";

/** @param {{run: string}} props */
export function RunView({ run }) {
  const [model, set] = useState(/** @type {RunModel | null} */ (null));
  const [known, know] = useState(false);
  useEffect(() => {
    const made = new RunModel(run);
    made.addEventListener("status", () => know(made.info !== null));
    set(made);
    return () => made.close();
  }, [run]);
  if (!model) return null;
  if (!known) return html`<${Now} model=${model} />`;
  return html`
    <${Lost} model=${model} />
    <${Now} model=${model} />
    <${Proposals} model=${model} />
    <${Verdicts} model=${model} />
    <div class="columns">
      <${Accuracy} model=${model} />
      <${Norms} model=${model} />
    </div>
    <div class="columns">
      <${EventList} model=${model} />
      <${RunAudit} model=${model} />
    </div>
    <${Members} model=${model} />
  `;
}

/** @param {{model: RunModel}} props */
function Lost({ model }) {
  useTopics(model, "connection");
  return html`<p class="lost" role="alert" hidden=${!model.lost}>
    ${model.lost && html`<b>Connection lost.</b> ${model.lost} The page may be out of date; it keeps trying to reconnect.`}
  </p>`;
}
