/** The page's entry point: shows the sign-in form, and loads the rest of the page in the background. */

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { useSession } from "./hooks.js";
import { SignIn } from "./views/sign_in.js";

/** The page after signing in. This part has most of the page's code, so it is loaded only after the first frame. */
const shell_module = new Promise((resolve) => requestAnimationFrame(resolve)).then(() => import("./shell.js"));

function Page() {
  const session = useSession();
  const [Shell, set_shell] = useState(/** @type {any} */ (null));
  useEffect(() => {
    shell_module.then((module) => set_shell(() => module.Shell));
  }, []);
  useEffect(() => {
    if (!session.signed_in) document.title = "Rampart";
  }, [session.signed_in]);
  if (!session.signed_in) return html`<${SignIn} />`;
  return Shell && html`<${Shell} />`;
}

const root = document.getElementById("page");
if (root) {
  root.textContent = "";
  render(html`<${Page} />`, root);
}
