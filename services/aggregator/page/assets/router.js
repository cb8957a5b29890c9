/** The current view, from the part of the address after `#`, which never contains a token. */

import { useEffect, useState } from "./vendor/preact.js";

/** @returns {string[]} the parts of the address, such as ["runs", "digits-1", "rounds", "3"] */
function parts() {
  return location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
}

/** The parts of the current address; renders again when it changes. */
export function useRoute() {
  const [route, set] = useState(parts);
  useEffect(() => {
    const changed = () => {
      set(parts());
      window.scrollTo(0, 0);
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/**
 * An address within the page.
 *
 * @param {...(string | number)} names
 */
export function href(...names) {
  return `#/${names.map((name) => encodeURIComponent(name)).join("/")}`;
}
