/** The events of a run, newest first, with a filter. */

import { html, useState } from "../vendor/preact.js";
import { clock } from "../format.js";
import { useTopics } from "../hooks.js";
import { href } from "../router.js";

/** Number of events in the list. */
const SHOWN = 100;
/** Types of events that are too frequent to read. */
const NOISY = new Set(["update", "pull", "ticket", "probe", "customize"]);

/** @param {{model: import("../run_model.js").RunModel}} props */
export function EventList({ model }) {
  useTopics(model, "events");
  const [filter, write] = useState("");
  const wanted = filter.trim().toLowerCase();
  const shown = [];
  for (let i = model.events.length - 1; i >= 0 && shown.length < SHOWN; i -= 1) {
    const event = model.events[i];
    if (wanted ? text(event).toLowerCase().includes(wanted) : !NOISY.has(event.type)) shown.push(event);
  }
  return html`<section class="panel" aria-labelledby="events">
    <div class="panel-head">
      <h2 id="events">Events</h2>
      <input type="search" aria-label="Filter events" placeholder="Filter, such as evicted" value=${filter}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} />
    </div>
    <ol class="log" tabindex="0" aria-label="Events, newest first">
      ${shown.map(
        (event) => html`<li key=${event.id}>
          <time>${clock(Number(event.id.split("-")[0]) / 1000)}</time>
          <span class=${`event ${event.type}`}>${event.type}</span>
          <span>
            ${event.data.client && html`<a class="id" href=${href("clients", event.data.client)}>${event.data.client}</a>`}
            ${event.data.round && html` <span class="muted">round ${event.data.round}</span>`}
            ${event.data.reason && html` ${event.data.reason}`}${event.data.mode && html` ${event.data.mode}`}
          </span>
        </li>`,
      )}
    </ol>
    ${!shown.length && html`<p class="empty">${wanted ? "No event contains this text." : "There are no events yet."}</p>`}
  </section>`;
}

/** @param {import("../event_stream.js").RunEvent} event */
function text(event) {
  return `${event.type} ${Object.values(event.data).join(" ")}`;
}
