/** The page: shows the sign-in form, and loads the rest in the background. */

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { useSession } from "./hooks.js";
import { SignIn } from "./views/sign_in.js";

/** The view after signing in. This view is most of the page's code, so it is loaded after the first frame. */
const shell = new Promise((done) => requestAnimationFrame(done)).then(() => import("./shell.js"));

function Page() {
  const session = useSession();
  const [Shell, set] = useState(/** @type {any} */ (null));
  useEffect(() => {
    shell.then((loaded) => set(() => loaded.Shell));
  }, []);
  useEffect(() => {
    if (!session.signedIn) document.title = "Rampart";
  }, [session.signedIn]);
  if (!session.signedIn) return html`<${SignIn} />`;
  return Shell && html`<${Shell} />`;
}

const root = document.getElementById("page");
if (root) {
  root.textContent = "";
  render(html`<${Page} />`, root);
}
