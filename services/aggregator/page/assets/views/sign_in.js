/** The form for signing in with an operator's token. */

import { html, useState } from "../vendor/preact.js";
import { Problem, request } from "../api.js";
import { session } from "../session.js";

export function SignIn() {
  const [token, write] = useState("");
  const [state, set] = useState({ busy: false, error: "" });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    set({ busy: true, error: "" });
    try {
      const given = token.trim();
      if (!/^[\x21-\x7e]{16,512}$/.test(given)) throw new Problem(401, "a token has 16 to 512 characters, without spaces");
      const who = await (await request("/v1/whoami", { token: given })).json();
      session.begin(given, who);
    } catch (error) {
      set({ busy: false, error: error instanceof Error ? error.message : String(error) });
    }
  };
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <img src="/assets/icon.svg" alt="" width="40" height="40" />
      <h1>Rampart</h1>
      ${session.farewell && html`<p class="notice" role="status">${session.farewell}</p>`}
      <label for="token">Operator token</label>
      <input id="token" type="password" autocomplete="off" spellcheck="false" required autofocus value=${token}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} />
      ${state.error && html`<p class="error" role="alert">Sign-in refused: ${state.error}.</p>`}
      <button type="submit" class="primary" disabled=${state.busy}>Sign in</button>
      <p class="hint">
        The token stays in this page's memory, so you must enter it again after a reload. With a viewer's token, you see
        everything and change nothing. <code>rampart operators add</code> makes tokens.
      </p>
    </form>
  </main>`;
}
