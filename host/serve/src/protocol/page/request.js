// From what stands in the form to a request: a body as it is, the fields of a form, or JSON.

import { typed } from "./exact.js";

const TAKES_FILE = ["bytes", "text", "any value"];

// The content type of a file, among those that the server reads.
function contentType(name, type) {
  if (/\.npy$/i.test(name)) return "application/x-npy";
  if (/^(image|audio)\//.test(type)) return type;
  return type === "text/plain" ? type : "application/octet-stream";
}

function parsed(input, text) {
  if (input.type === "text") return text;
  // What takes anything gets a text, or the JSON that this is.
  if (input.type === "any value" && !/^\s*[[{]/.test(text)) return text;
  try {
    return typed(text);
  } catch (error) {
    throw new Error(`${input.name}: this is not JSON (${error.message})`);
  }
}

// `values` has for each input's name {file: {name, type}} or {text}; what is left out is not there. A `table` takes
// their place: each of its rows is a request.
export function request(info, path, values, table) {
  if (table) {
    const isTabbed = /\.(tsv|tab)$/i.test(table.name);
    return { path, kind: "raw", contentType: isTabbed ? "text/tab-separated-values" : "text/csv", file: table };
  }
  const given = info.inputs.filter((input) => values[input.name]);
  const missing = info.inputs.filter((input) => input.required && !values[input.name]);
  if (missing.length > 0) throw new Error(`${missing.map((input) => input.name).join(", ")}: nothing is given`);
  const files = given.filter((input) => values[input.name].file);
  const [first] = files;
  if (given.length === 1 && first) {
    const { file } = values[first.name];
    if (/\.json$/i.test(file.name)) return { path, kind: "raw", contentType: "application/json", file };
    const takers = info.inputs.filter((input) => TAKES_FILE.includes(input.type));
    const type = contentType(file.name, file.type);
    const only = type === "application/x-npy" ? info.inputs.length === 1 : takers.length === 1 && takers[0] === first;
    if (only) return { path, kind: "raw", contentType: type, file };
  }
  if (first) {
    const field = (input) => {
      const { file, text } = values[input.name];
      if (text !== undefined) parsed(input, text);
      return { name: input.name, file, text };
    };
    return { path, kind: "form", fields: given.map(field) };
  }
  const json = Object.fromEntries(given.map((input) => [input.name, parsed(input, values[input.name].text)]));
  return { path, kind: "json", json };
}

// The options of `fetch` that send it.
export function options(asked, key) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  if (asked.kind === "raw") {
    return { method: "POST", headers: { ...headers, "content-type": asked.contentType }, body: asked.file };
  }
  if (asked.kind === "json") {
    const body = JSON.stringify(asked.json);
    return { method: "POST", headers: { ...headers, "content-type": "application/json" }, body };
  }
  const body = new FormData();
  for (const { name, file, text } of asked.fields) file ? body.append(name, file, file.name) : body.append(name, text);
  return { method: "POST", headers, body };
}
