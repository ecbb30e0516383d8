// The API, from /openapi.json.

import { byId, element } from "./element.js";

const key = () => byId("key").value;
const authorization = () => (key() ? { authorization: `Bearer ${key()}` } : {});

async function load() {
  const answer = await fetch("/openapi.json", { headers: authorization() });
  if ([401, 403].includes(answer.status)) {
    byId("notice").textContent = "This server wants a key.";
    byId("key-line").hidden = false;
    byId("key").addEventListener("change", load, { once: true });
    return;
  }
  const api = await answer.json();
  byId("notice").hidden = true;
  byId("description").textContent = api.info.description;
  const groups = new Map([["The server", []], ...api.tags.map((tag) => [tag.name, []])]);
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      groups.get(operation.tags?.[0] ?? "The server").push(shown(api, path, method, operation));
    }
  }
  byId("operations").replaceChildren(...[...groups].flatMap(([name, operations]) => [element("h2", {}, name), ...operations]));
}

function shown(api, path, method, operation) {
  return element("details", { class: "operation", id: operation.operationId },
    element("summary", {},
      element("span", { class: "method" }, method.toUpperCase()), element("span", { class: "path" }, path),
      element("span", {}, operation.summary)),
    operation.description && element("p", {}, operation.description),
    operation.parameters?.length && [element("h3", {}, "In the query"),
      element("dl", {}, operation.parameters.map((parameter) =>
        [element("dt", {}, parameter.name), element("dd", {}, parameter.description ?? "")]))],
    operation.requestBody && [element("h3", {}, "Body"), contents(api, operation.requestBody.content)],
    element("h3", {}, "Answers"),
    Object.entries(operation.responses).map(([status, response]) => element("details", {},
      element("summary", {}, `${status}: ${response.description}`), contents(api, response.content ?? {}))),
    element("h3", {}, "Try"), form(path, method, operation));
}

function contents(api, content) {
  return Object.entries(content).map(([type, { schema }]) =>
    element("details", {}, element("summary", {}, type),
      element("pre", { tabindex: "0" }, JSON.stringify(resolved(api, schema), null, 2))));
}

// The schema with what it refers to in its place.
function resolved(api, schema, depth = 0) {
  if (Array.isArray(schema)) return schema.map((item) => resolved(api, item, depth));
  if (schema === null || typeof schema !== "object" || depth > 8) return schema;
  const name = schema.$ref?.replace("#/components/schemas/", "");
  if (name) return resolved(api, api.components.schemas[name], depth + 1);
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, resolved(api, value, depth)]));
}

function form(path, method, operation) {
  const types = Object.keys(operation.requestBody?.content ?? {}).filter((type) => type !== "multipart/form-data");
  const type = element("select", { "aria-label": "type of the body" }, types.map((name) => element("option", {}, name)));
  const text = element("textarea", { rows: 4, "aria-label": "body", placeholder: "the body" });
  const file = element("input", { type: "file", "aria-label": "a file as the body" });
  const query = element("input", { type: "text", "aria-label": "query", placeholder: "query, such as timeout=2" });
  const answer = element("div", { "aria-live": "polite" });
  const send = async (event) => {
    event.preventDefault();
    const [chosen] = file.files ?? [];
    const kind = type.value === "image/*" || type.value === "audio/*" ? (chosen?.type || "image/png") : type.value;
    const body = types.length > 0 ? { body: chosen ?? text.value, headers: { ...authorization(), "content-type": kind } } : { headers: authorization() };
    const url = query.value ? `${path}?${query.value}` : path;
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
    operation.parameters?.length && element("p", {}, query),
    element("p", {}, element("button", { type: "submit" }, "Send")), answer);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2).slice(0, 100_000);
  } catch {
    return text.slice(0, 10_000);
  }
}

load().catch((error) => (byId("notice").textContent = error.message));
