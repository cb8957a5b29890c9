/** As much of a document as Preact needs, so that tests can render components, and read and operate them. */

import { settle } from "./harness.js";

class FakeNode {
  constructor(node_type) {
    this.nodeType = node_type;
    this.childNodes = [];
    this.parentNode = null;
  }

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get nextSibling() {
    const siblings = this.parentNode ? this.parentNode.childNodes : [];
    return siblings[siblings.indexOf(this) + 1] ?? null;
  }

  contains(node) {
    return node === this || this.childNodes.some((child) => child.contains(node));
  }

  insertBefore(child, next) {
    child.remove();
    this.childNodes.splice(next ? this.childNodes.indexOf(next) : this.childNodes.length, 0, child);
    child.parentNode = this;
    return child;
  }

  appendChild(child) {
    return this.insertBefore(child, null);
  }

  removeChild(child) {
    this.childNodes.splice(this.childNodes.indexOf(child), 1);
    child.parentNode = null;
    return child;
  }

  remove() {
    this.parentNode?.removeChild(this);
  }

  get text() {
    return this.nodeType === 3 ? String(this.data) : this.childNodes.map((child) => child.text).join("");
  }
}

class FakeElement extends FakeNode {
  constructor(name) {
    super(1);
    this.localName = name;
    this.attributes = {};
    this.listeners = {};
    this.style = {};
    this.value = "";
    this.hidden = false;
    this.disabled = false;
    this.open = false;
    // Preact writes the names of events in lower case only if these properties exist.
    for (const type of ["click", "change", "input", "submit", "cancel"]) this[`on${type}`] = null;
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }

  removeAttribute(name) {
    delete this.attributes[name];
  }

  addEventListener(type, listener) {
    this.listeners[type] = listener;
  }

  removeEventListener(type) {
    delete this.listeners[type];
  }

  showModal() {
    this.open = true;
  }

  close() {
    this.open = false;
  }

  /** All elements below this one with a name, for example `button`. */
  all(name) {
    return this.childNodes.flatMap((child) => (child.nodeType === 1 ? [...(child.localName === name ? [child] : []), ...child.all(name)] : []));
  }

  /** The first element below this one with a name and an attribute `id` or `type`. */
  one(name, key = "") {
    return this.all(name).find((element) => !key || [element.attributes.id, element.attributes.type, element.id, element.type].includes(key));
  }

  /** Lets the user do something, and waits for what follows. */
  async act(type, value) {
    if (value !== undefined) this.value = value;
    this.listeners[type]?.call(this, { type, target: this, preventDefault() {} });
    await settle();
  }
}

/** Replaces the document; returns an element into which to render. */
export function create_document() {
  globalThis.document = {
    createElement: (name) => new FakeElement(name),
    createElementNS: (_, name) => new FakeElement(name),
    createTextNode: (data) => Object.assign(new FakeNode(3), { data }),
  };
  globalThis.requestAnimationFrame = (callback) => setImmediate(callback);
  globalThis.cancelAnimationFrame = (id) => clearImmediate(id);
  return new FakeElement("main");
}
