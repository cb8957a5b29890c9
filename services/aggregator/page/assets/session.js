/** The signed-in operator. Only this module holds the token, so a reload asks for it again. */

/** @type {{token: string, name: string, role: string} | null} */
let current = null;
/** Why the last session ended; shown in the sign-in form. */
let farewell = "";
/** @type {Set<() => void>} */
const listeners = new Set();

export const session = {
  get token() {
    return current ? current.token : "";
  },
  get name() {
    return current ? current.name : "";
  },
  get signedIn() {
    return current !== null;
  },
  /** Whether the operator may make changes; a viewer may not. */
  get acts() {
    return current !== null && current.role === "operator";
  },
  get farewell() {
    return farewell;
  },
  /** @param {() => void} listener */
  listen(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  /**
   * @param {string} token
   * @param {{name: string, role: string}} who
   */
  begin(token, who) {
    current = { token, ...who };
    farewell = "";
    listeners.forEach((tell) => tell());
  },
  /** @param {string} reason */
  end(reason) {
    if (current === null) return;
    current = null;
    farewell = reason;
    listeners.forEach((tell) => tell());
  },
};
