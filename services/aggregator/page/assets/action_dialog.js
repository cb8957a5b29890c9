/** The dialog that explains an action, asks for a reason, and performs the action. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { normalize_reason } from "./actions.js";
import { session } from "./session.js";

/** Opens the dialog; null while no dialog is mounted. @type {((action: import("./actions.js").Action, on_success?: () => void) => void) | null} */
let open_dialog = null;

/**
 * Opens the dialog in which the operator confirms an action.
 *
 * @param {import("./actions.js").Action} action
 * @param {() => void} [on_success] called after the action has succeeded
 */
export function open_action_dialog(action, on_success) {
  if (open_dialog) open_dialog(action, on_success);
}

/**
 * A button that opens the dialog for an action. A viewer sees no button.
 *
 * @param {{action: import("./actions.js").Action, on_success?: () => void, label?: string}} props
 */
export function ActionButton({ action, on_success, label }) {
  if (!session.is_operator) return null;
  return html`<button type="button" class=${action.destructive ? "grave" : ""} onClick=${() => open_action_dialog(action, on_success)} aria-haspopup="dialog">
    ${label || action.label}
  </button>`;
}

export function ActionDialog() {
  const [pending, set_pending] = useState(/** @type {{action: import("./actions.js").Action, on_success?: () => void} | null} */ (null));
  const [reason, set_reason] = useState("");
  const [submission, set_submission] = useState({ is_submitting: false, error: "" });
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    open_dialog = (action, on_success) => {
      set_reason("");
      set_submission({ is_submitting: false, error: "" });
      set_pending({ action, on_success });
    };
    return () => {
      open_dialog = null;
    };
  }, []);
  useEffect(() => {
    if (pending && dialog.current && !dialog.current.open) dialog.current.showModal();
  }, [pending]);
  if (!pending) return null;
  const { action, on_success } = pending;
  const close = () => {
    if (dialog.current) dialog.current.close();
    set_pending(null);
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const one_line_reason = normalize_reason(reason);
    if (!one_line_reason) {
      set_submission({ is_submitting: false, error: "The reason is only white space: enter a reason." });
      return;
    }
    set_submission({ is_submitting: true, error: "" });
    try {
      await action.perform(one_line_reason);
      close();
      if (on_success) on_success();
    } catch (error) {
      set_submission({ is_submitting: false, error: error instanceof Error ? error.message : String(error) });
    }
  };
  return html`<dialog ref=${dialog} aria-labelledby="act-title" onCancel=${() => set_pending(null)}>
    <form onSubmit=${submit}>
      <h2 id="act-title">${action.title}</h2>
      <p>${action.effect}</p>
      <label for="act-reason">Reason</label>
      <textarea id="act-reason" rows="3" maxlength="500" required value=${reason}
        onInput=${(/** @type {any} */ event) => set_reason(event.target.value)}></textarea>
      <p class="hint">The audit log keeps the reason with your name, ${session.name}.</p>
      ${submission.error && html`<p id="act-error" class="error" role="alert">${submission.error}</p>`}
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button type="submit" class=${action.destructive ? "grave solid" : "primary"} disabled=${submission.is_submitting}>${action.label}</button>
      </div>
    </form>
  </dialog>`;
}
