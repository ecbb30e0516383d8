// The API, from /openapi.json.

import { byId, element, indented, prose, root } from "./element.js";
import { parse } from "./exact.js";

const key = () => byId("key").value;
const authorization = () => (key() ? { authorization: `Bearer ${key()}` } : {});

async function load() {
  const answer = await fetch(`${root}/openapi.json`, { headers: authorization() });
  if ([401, 403].includes(answer.status)) {
    byId("notice").textContent = "This server wants a key.";
    byId("key-line").hidden = false;
    byId("key").addEventListener("change", load, { once: true });
    return;
  }
  const api = await answer.json();
  byId("notice").hidden = true;
  byId("description").replaceChildren(...prose(api.info.description));
  const groups = new Map([["The server", []], ...api.tags.map((tag) => [tag.name, []])]);
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      groups.get(operation.tags?.[0] ?? "The server").push(shown(api, path, method, operation));
    }
  }
  byId("operations").replaceChildren(...[...groups].flatMap(([name, operations]) => [element("h2", {}, name), ...operations]));
}

function shown(api, path, method, operation) {
  const parameters = (operation.parameters ?? []).map((parameter) => resolved(api, parameter));
  const section = (title, place) => {
    const some = parameters.filter((parameter) => parameter.in === place);
    return some.length > 0 && [element("h3", {}, title),
      element("dl", {}, some.map((parameter) =>
        [element("dt", {}, parameter.name), element("dd", {}, prose(parameter.description))]))];
  };
  return element("details", { class: "operation", id: operation.operationId, toggle: (event) => bringSample(event.target, path).catch(() => {}) },
    element("summary", {},
      element("span", { class: "method" }, method.toUpperCase()), element("span", { class: "path" }, path),
      element("span", {}, prose(operation.summary))),
    operation.description && element("p", {}, prose(operation.description)),
    element("h3", {}, "Try it"), form(path, method, operation, parameters),
    section("In the path", "path"), section("In the query", "query"), section("In the head", "header"),
    operation.requestBody && [element("h3", {}, "Body"), contents(api, operation.requestBody.content)],
    element("h3", {}, "Answers"),
    Object.entries(operation.responses).map(([status, given]) => [status, pointed(api, given)]).map(([status, response]) =>
      element("details", {},
        element("summary", {}, `${status}: `, prose(response.description)), contents(api, response.content ?? {}))));
}

// Fills an empty body with the pipeline's sample, where there is one.
async function bringSample(details, path) {
  const text = details.querySelector("textarea");
  if (!details.open || !path.endsWith("/predict") || text.value) return;
  const info = await fetch(root + path.replace(/predict$/, "info"), { headers: authorization() });
  if (!info.ok || !(await info.json()).sample) return;
  const sample = await fetch(root + path.replace(/predict$/, "sample"), { headers: authorization() });
  if (sample.ok && !text.value) text.value = await sample.text();
}

function contents(api, content) {
  return Object.entries(content).map(([type, { schema }]) =>
    element("details", {}, element("summary", {}, type),
      element("pre", { tabindex: "0" }, JSON.stringify(resolved(api, schema), null, 2))));
}

// What stands where it is only referred to.
function pointed(api, node) {
  if (!node?.$ref) return node;
  return node.$ref.split("/").slice(1).reduce((place, key) => place?.[key], api);
}

// The schema with what it refers to in its place.
function resolved(api, schema, depth = 0) {
  if (Array.isArray(schema)) return schema.map((item) => resolved(api, item, depth));
  if (schema === null || typeof schema !== "object" || depth > 8) return schema;
  if (schema.$ref) return resolved(api, pointed(api, schema), depth + 1);
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, resolved(api, value, depth)]));
}

// A field for a parameter, with what it may be to choose from.
function field({ name, schema, example }) {
  if (!schema?.enum) return element("input", { type: "text", "aria-label": name, placeholder: name, value: example });
  return element("select", { "aria-label": name }, schema.enum.map((value) => element("option", {}, value)));
}

function form(path, method, operation, parameters) {
  const named = parameters.filter((parameter) => parameter.in === "path").map((parameter) => [parameter.name, field(parameter)]);
  const asked = parameters.some((parameter) => parameter.in === "query");
  const types = Object.keys(operation.requestBody?.content ?? {}).filter((type) => type !== "multipart/form-data");
  const type = element("select", { "aria-label": "type of the body" }, types.map((name) => element("option", {}, name)));
  const example = operation.requestBody?.content["application/json"]?.example;
  const text = element("textarea", { rows: 4, "aria-label": "body", placeholder: "the body" }, example && JSON.stringify(example));
  const file = element("input", { type: "file", "aria-label": "a file as the body" });
  const query = element("input", { type: "text", "aria-label": "query", placeholder: "query, such as timeout=2" });
  const answer = element("div", { "aria-live": "polite" });
  const send = async (event) => {
    event.preventDefault();
    const [chosen] = file.files ?? [];
    const kind = type.value === "image/*" || type.value === "audio/*" ? (chosen?.type || "image/png") : type.value;
    const body = types.length > 0 ? { body: chosen ?? text.value, headers: { ...authorization(), "content-type": kind } } : { headers: authorization() };
    const filled = named.reduce((made, [name, value]) => made.replace(`{${name}}`, encodeURIComponent(value.value)), path);
    const url = root + (query.value ? `${filled}?${query.value}` : filled);
    try {
      const given = await fetch(url, { method: method.toUpperCase(), ...body });
      const said = await given.text();
      const headers = [...given.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
      answer.replaceChildren(element("pre", { tabindex: "0" }, `${given.status} ${given.statusText}\n${headers}\n\n${pretty(said)}`));
    } catch {
      answer.replaceChildren(element("p", { class: "wrong" }, "The server cannot be reached."));
    }
  };
  return element("form", { submit: send },
    types.length > 0 && [element("p", { class: "line" }, type, file), text],
    named.length > 0 && element("p", { class: "line" }, named.map(([, value]) => value)),
    asked && element("p", {}, query),
    element("p", {}, element("button", { type: "submit" }, "Send")), answer);
}

function pretty(text) {
  try {
    return indented(parse(text)).slice(0, 100_000);
  } catch {
    return text.slice(0, 10_000);
  }
}

load().catch((error) => (byId("notice").textContent = error.message));
