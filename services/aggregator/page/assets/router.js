/** The route: the part of the address after `#`, which never contains a token. */

import { useEffect, useState } from "./vendor/preact.js";

/** @returns {string[]} the segments of the route, such as ["runs", "digits-1", "rounds", "3"] */
function route_segments() {
  return location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter(Boolean)
    .map((segment) => {
      try {
        return decodeURIComponent(segment);
      } catch {
        return segment;
      }
    });
}

/** The segments of the current route; the caller renders again when the route changes. */
export function useRoute() {
  const [route, set_route] = useState(route_segments);
  useEffect(() => {
    const handle_hash_change = () => {
      set_route(route_segments());
      window.scrollTo(0, 0);
    };
    addEventListener("hashchange", handle_hash_change);
    return () => removeEventListener("hashchange", handle_hash_change);
  }, []);
  return route;
}

/**
 * A link within the page.
 *
 * @param {...(string | number)} segments
 */
export function href(...segments) {
  return `#/${segments.map((segment) => encodeURIComponent(segment)).join("/")}`;
}
