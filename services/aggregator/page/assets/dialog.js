/** The dialog that explains an action, asks for a reason, and performs the action. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { session } from "./session.js";

/** @type {((act: import("./acts.js").Act, done?: () => void) => void) | null} */
let show = null;

/**
 * Asks the operator to confirm an action.
 *
 * @param {import("./acts.js").Act} act
 * @param {() => void} [done] called after the action
 */
export function propose(act, done) {
  if (show) show(act, done);
}

/**
 * A button for an action; nothing for a viewer.
 *
 * @param {{act: import("./acts.js").Act, done?: () => void, label?: string}} props
 */
export function ActButton({ act, done, label }) {
  if (!session.acts) return null;
  return html`<button type="button" class=${act.grave ? "grave" : ""} onClick=${() => propose(act, done)} aria-haspopup="dialog">
    ${label || act.verb}
  </button>`;
}

export function ActDialog() {
  const [asked, ask] = useState(/** @type {{act: import("./acts.js").Act, done?: () => void} | null} */ (null));
  const [reason, write] = useState("");
  const [state, set] = useState({ busy: false, error: "" });
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    show = (act, done) => {
      write("");
      set({ busy: false, error: "" });
      ask({ act, done });
    };
    return () => {
      show = null;
    };
  }, []);
  useEffect(() => {
    if (asked && box.current && !box.current.open) box.current.showModal();
  }, [asked]);
  if (!asked) return null;
  const { act, done } = asked;
  const close = () => {
    if (box.current) box.current.close();
    ask(null);
  };
  const confirm = async (/** @type {Event} */ event) => {
    event.preventDefault();
    set({ busy: true, error: "" });
    try {
      await act.perform(reason.trim());
      close();
      if (done) done();
    } catch (error) {
      set({ busy: false, error: error instanceof Error ? error.message : String(error) });
    }
  };
  return html`<dialog ref=${box} aria-labelledby="act-title" onCancel=${() => ask(null)}>
    <form onSubmit=${confirm}>
      <h2 id="act-title">${act.title}</h2>
      <p>${act.outcome}</p>
      <label for="act-reason">Reason</label>
      <textarea id="act-reason" rows="3" maxlength="500" required value=${reason}
        onInput=${(/** @type {any} */ event) => write(event.target.value)}></textarea>
      <p class="hint">The audit log keeps the reason with your name, ${session.name}.</p>
      ${state.error && html`<p class="error" role="alert">${state.error}</p>`}
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button type="submit" class=${act.grave ? "grave solid" : "primary"} disabled=${state.busy}>${act.verb}</button>
      </div>
    </form>
  </dialog>`;
}
