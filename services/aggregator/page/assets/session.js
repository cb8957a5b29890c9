/** The signed-in user. Only this module holds the token, so the user must enter it again after a reload. */

/** @type {{token: string, name: string, role: string} | null} */
let user = null;
/** Why the user was signed out; shown in the sign-in form. */
let sign_out_reason = "";
/** @type {Set<() => void>} */
const listeners = new Set();

export const session = {
  get token() {
    return user ? user.token : "";
  },
  get name() {
    return user ? user.name : "";
  },
  get signed_in() {
    return user !== null;
  },
  /** Whether the user is an operator, who may perform actions; a viewer may not. */
  get is_operator() {
    return user !== null && user.role === "operator";
  },
  get sign_out_reason() {
    return sign_out_reason;
  },
  /**
   * Calls `listener` when the user signs in or out; returns a function that removes the listener.
   *
   * @param {() => void} listener
   */
  subscribe(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  /**
   * @param {string} token
   * @param {{name: string, role: string}} account
   */
  sign_in(token, account) {
    user = { token, ...account };
    sign_out_reason = "";
    listeners.forEach((listener) => listener());
  },
  /** @param {string} reason */
  sign_out(reason) {
    if (user === null) return;
    user = null;
    sign_out_reason = reason;
    listeners.forEach((listener) => listener());
  },
};
