/** The operator who is signed in. Only this module holds the token: a reload asks again. */

/** @type {{token: string, name: string, role: string} | null} */
let current = null;
/** Why the last session ended; shown where the operator signs in. */
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
  /** Whether the operator may change something; a viewer may not. */
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
