/** The form for signing in with an operator's token. */

import { html, useState } from "../vendor/preact.js";
import { ApiError, request } from "../api.js";
import { session } from "../session.js";

export function SignIn() {
  const [token, set_token] = useState("");
  const [submission, set_submission] = useState({ is_submitting: false, error: "" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    set_submission({ is_submitting: true, error: "" });
    try {
      const trimmed_token = token.trim();
      if (!/^[\x21-\x7e]{16,512}$/.test(trimmed_token)) throw new ApiError(401, "a token has 16 to 512 characters, without spaces");
      const account = await (await request("/v1/whoami", { token: trimmed_token })).json();
      session.sign_in(trimmed_token, account);
    } catch (error) {
      set_submission({ is_submitting: false, error: error instanceof Error ? error.message : String(error) });
    }
  };
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <img src="/assets/icon.svg" alt="" width="40" height="40" />
      <h1>Rampart</h1>
      ${session.sign_out_reason && html`<p class="notice" role="status">${session.sign_out_reason}</p>`}
      <label for="token">Operator token</label>
      <input id="token" type="password" autocomplete="off" spellcheck="false" required autofocus value=${token}
        onInput=${(/** @type {any} */ event) => set_token(event.target.value)} />
      ${submission.error && html`<p class="error" role="alert">Sign-in refused: ${submission.error}.</p>`}
      <button type="submit" class="primary" disabled=${submission.is_submitting}>Sign in</button>
      <p class="hint">
        The token stays in this page's memory, so you must enter it again after a reload. With a viewer's token, you see
        everything and change nothing. <code>rampart operators add</code> makes tokens.
      </p>
    </form>
  </main>`;
}
