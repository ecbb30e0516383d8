// Elements of a page, from a tag, attributes and children; a function among the attributes listens.

import { source } from "./exact.js";

// Where the server is shown, without a slash at its end: this file lies in a folder below.
export const root = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
}

// Text, with what stands in backticks as code.
export function prose(text = "") {
  const parts = text.split("`");
  return parts.length % 2 === 0 ? [text] : parts.map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

export const byId = (id) => document.getElementById(id);

// JSON on several lines; a list of numbers stays on one.
export const indented = (json) =>
  JSON.stringify(json, null, 2).replace(/\[\n\s+([-+\d.eE,\s]+?)\n\s+\]/g, (_, items) => `[${items.replace(/\s+/g, " ")}]`);

// A number as people read it: enough digits to tell it from others, no more.
export function number(value) {
  if (typeof value !== "number") return source(value) ?? String(value);
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  const power = Math.min(3, Math.floor(Math.log2(count) / 10));
  return `${(count / 1024 ** power).toFixed(1)} ${["", "KiB", "MiB", "GiB"][power]}`;
}

// A bar that fills `share` of its place.
export function bar(share) {
  const inner = element("span");
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element("div", { class: "bar", "aria-hidden": "true" }, inner);
}
