/** The events of a run, newest first, with a filter. */

import { html, useState } from "../vendor/preact.js";
import { format_time } from "../format.js";
import { useStoreTopics } from "../hooks.js";
import { href } from "../router.js";

const MAX_EVENTS_SHOWN = 100;
/** Types of frequent events, which are shown only if they match a filter. */
const FREQUENT_EVENT_TYPES = new Set(["update", "pull", "ticket", "probe", "customize"]);

/** @param {{store: import("../run_store.js").RunStore}} props */
export function EventList({ store }) {
  useStoreTopics(store, "events");
  const [filter, set_filter] = useState("");
  const query = filter.trim().toLowerCase();
  const matches = [];
  for (let i = store.events.length - 1; i >= 0 && matches.length < MAX_EVENTS_SHOWN; i -= 1) {
    const event = store.events[i];
    if (query ? searchable_text(event).toLowerCase().includes(query) : !FREQUENT_EVENT_TYPES.has(event.type)) matches.push(event);
  }
  return html`<section class="panel" aria-labelledby="events">
    <div class="panel-head">
      <h2 id="events">Events</h2>
      <input type="search" aria-label="Filter events" placeholder="Filter, such as evicted" value=${filter}
        onInput=${(/** @type {any} */ event) => set_filter(event.target.value)} />
    </div>
    <ol class="log" tabindex="0" aria-label="Events, newest first">
      ${matches.map(
        (event) => html`<li key=${event.id}>
          <time>${format_time(Number(event.id.split("-")[0]) / 1000)}</time>
          <span class=${`event ${event.type}`}>${event.type}</span>
          <span>
            ${event.data.client && html`<a class="id" href=${href("clients", event.data.client)}>${event.data.client}</a>`}
            ${event.data.round && html` <span class="muted">round ${event.data.round}</span>`}
            ${event.data.reason && html` ${event.data.reason}`}${event.data.mode && html` ${event.data.mode}`}
          </span>
        </li>`,
      )}
    </ol>
    ${!matches.length && html`<p class="empty">${query ? "No event contains this text." : "There are no events yet."}</p>`}
  </section>`;
}

/** @param {import("../event_stream.js").RunEvent} event */
function searchable_text(event) {
  return `${event.type} ${Object.values(event.data).join(" ")}`;
}
