// The page to try pipelines on.

import { languages } from "./code.js";
import { byId, element, root } from "./element.js";
import { parse } from "./exact.js";
import { options, request } from "./request.js";
import { failure, output } from "./result.js";
import { steps, summary } from "./steps.js";

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const key = () => byId("key").value;

// What the page shows now.
let info;
let path = `${root}/predict`;
let values = {};
let language = "curl";
let picture;

async function asked(url) {
  for (;;) {
    const answer = await fetch(url, { headers: key() ? { authorization: `Bearer ${key()}` } : {} });
    if (answer.ok) return answer.json();
    const error = await answer.json().catch(() => ({}));
    if ([401, 403].includes(answer.status)) {
      notice(key() ? (error.message ?? "The key is not taken.") : "This server wants a key.");
      byId("key-line").hidden = false;
      byId("columns").hidden = false;
      await new Promise((done) => byId("key").addEventListener("change", done, { once: true }));
    } else if (answer.status === 503) {
      notice(error.message ?? "The pipelines are being loaded …");
      await pause(Number(answer.headers.get("retry-after")) || 1);
    } else {
      throw new Error(error.message ?? `${url}: status ${answer.status}`);
    }
  }
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

async function load() {
  let { pipelines } = await asked(`${root}/pipelines`);
  while (pipelines.length === 0) {
    notice("The pipelines are being loaded …");
    await pause(1);
    ({ pipelines } = await asked(`${root}/pipelines`));
  }
  const wanted = new URLSearchParams(location.search).get("pipeline");
  const names = pipelines.map((pipeline) => pipeline.name);
  byId("pipelines").replaceChildren(...names.map((name) => element("option", {}, name)));
  const ready = pipelines.find((pipeline) => pipeline.state === "ready");
  byId("pipelines").value = names.includes(wanted) ? wanted : (ready?.name ?? names[0]);
  byId("picker").hidden = names.length < 2;
  await show(byId("pipelines").value, names.length > 1);
}

async function show(name, several) {
  const prefix = several ? `${root}/pipelines/${encodeURIComponent(name)}` : root;
  info = await asked(`${prefix}/info`);
  path = `${prefix}/predict`;
  values = {};
  picture = undefined;
  notice("");
  document.title = `gpux: ${info.name}`;
  byId("name").textContent = `${info.name} ${info.version}`;
  byId("description").textContent = info.description ?? "";
  byId("steps-line").textContent = `${info.steps.join(" → ")} · ${info.engine}`;
  byId("fields").replaceChildren(...info.inputs.map(field));
  byId("trace").disabled = !info.trace;
  byId("trace").checked = info.trace;
  byId("result").replaceChildren(element("p", { class: "quiet" }, "Nothing has run yet."));
  for (const id of ["about", "columns"]) byId(id).hidden = false;
  byId("trace-section").hidden = true;
  code();
}

// The part of the form that asks for one input.
function field(input) {
  const legend = element("legend", {}, input.name, input.required ? "" : " (may be left out)");
  const about = input.description && element("p", { class: "quiet" }, input.description);
  const shape = input.shape ? `[${input.shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]` : "";
  const kind = element("p", { class: "quiet" }, `${input.media_type ?? input.type}${shape}`);
  const parts = input.type === "bytes" ? [drop(input)] : [area(input), drop(input)];
  return element("fieldset", { class: "field", "data-input": input.name }, legend, about, kind, parts);
}

function area(input) {
  const examples = { text: "a text", "any value": "a text, or JSON", JSON: "JSON" };
  const example = examples[input.type] ?? "JSON, such as nested lists";
  const write = (event) => {
    const text = event.target.value;
    if (text.trim()) values[input.name] = { text };
    else delete values[input.name];
    code();
  };
  return element("textarea", { rows: 4, placeholder: example, "aria-label": input.name, input: write, spellcheck: "false" });
}

function drop(input) {
  const seen = element("div");
  const take = (file) => {
    if (!file) return;
    values[input.name] = { file };
    const area = zone.parentElement.querySelector("textarea");
    if (area) area.value = "";
    seen.replaceChildren(...shown(file));
    code();
  };
  const chooser = element("input", {
    type: "file",
    accept: input.media_type ?? (input.type === "text" ? "text/*" : false),
    "aria-label": `a file for ${input.name}`,
    change: (event) => take(event.target.files[0]),
  });
  const zone = element("label", {
    class: "drop",
    dragover: (event) => (event.preventDefault(), zone.classList.add("over")),
    dragleave: () => zone.classList.remove("over"),
    drop: (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      take(event.dataTransfer.files[0]);
    },
  }, "Drop, paste or choose a file", chooser, seen);
  zone.take = take;
  return zone;
}

// The file, where a browser can show it.
function shown(file) {
  if (picture) URL.revokeObjectURL(picture);
  picture = undefined;
  if (file.type.startsWith("image/")) {
    picture = URL.createObjectURL(file);
    return [element("img", { src: picture, alt: file.name })];
  }
  if (file.type.startsWith("audio/")) return [element("audio", { controls: true, src: URL.createObjectURL(file) })];
  return [`${file.name}, ${file.size} bytes`];
}

// What is pasted goes to the first input that takes a file and has nothing yet.
document.addEventListener("paste", (event) => {
  const [file] = event.clipboardData?.files ?? [];
  const zones = [...document.querySelectorAll(".drop")];
  const free = zones.find((zone) => !values[zone.closest("fieldset").dataset.input]) ?? zones[0];
  if (file && free) {
    event.preventDefault();
    free.take(file);
  }
});

function code() {
  let text;
  try {
    text = languages[language](location.origin, request(info, path, values));
  } catch (error) {
    text = error.message;
  }
  byId("code").textContent = text;
  byId("copied").textContent = "";
}

byId("languages").replaceChildren(...Object.keys(languages).map((name) =>
  element("button", {
    type: "button",
    "aria-pressed": String(name === language),
    click: (event) => {
      language = name;
      for (const button of byId("languages").children) button.setAttribute("aria-pressed", String(button === event.target));
      code();
    },
  }, name)));

byId("copy").addEventListener("click", async () => {
  // Without TLS, browsers give pages no clipboard: the text is selected instead.
  try {
    await navigator.clipboard.writeText(byId("code").textContent);
    byId("copied").textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(byId("code"));
    byId("copied").textContent = "Selected; press Ctrl+C.";
  }
});

byId("pipelines").addEventListener("change", (event) => {
  history.replaceState(null, "", `?pipeline=${encodeURIComponent(event.target.value)}`);
  show(event.target.value, true).catch((error) => notice(error.message));
});

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("run");
  button.disabled = true;
  byId("result").setAttribute("aria-busy", "true");
  try {
    await run();
  } catch (error) {
    tell(element("div", { class: "wrong", role: "alert" }, element("p", { class: "text" }, error.message)));
  }
  byId("result").setAttribute("aria-busy", "false");
  button.disabled = false;
});

function tell(...nodes) {
  byId("result").replaceChildren(...nodes.flat(Infinity).filter(Boolean));
}

async function run() {
  const traced = byId("trace").checked;
  const sent = options(request(info, path, values), key());
  const start = performance.now();
  let answer;
  try {
    answer = await fetch(traced ? `${path}?trace=true` : path, sent);
  } catch {
    throw new Error("The server cannot be reached.");
  }
  const json = parse(await answer.text());
  const whole = performance.now() - start;
  byId("trace-section").hidden = true;
  if (answer.ok) {
    const outputs = traced ? json.outputs : json;
    tell(results(outputs), raw(outputs));
  } else {
    byId("key-line").hidden &&= ![401, 403].includes(answer.status);
    tell(failure(answer.status, json, answer.headers.get("retry-after")), raw(json));
  }
  const trace = answer.ok ? traced && json.trace : json.details?.trace;
  if (trace) {
    byId("steps").replaceChildren(...steps(trace));
    byId("trace-section").hidden = trace.steps.length === 0;
  }
  const line = trace ? summary(trace, whole) : `there and back ${whole.toFixed(1)} ms`;
  byId("result").append(element("p", { class: "quiet" }, line));
}

function results(outputs) {
  if (Array.isArray(outputs)) return outputs.map((one, place) => [element("h3", {}, `request ${place + 1}`), results(one)]);
  return Object.entries(outputs).map(([name, value]) => {
    const { labels, probabilities } = info.outputs.find((known) => known.name === name) ?? {};
    return [element("h3", {}, name), output(value, { labels, probabilities, picture })];
  });
}

function raw(json) {
  const text = JSON.stringify(json, null, 2);
  return element("details", {}, element("summary", {}, "JSON"),
    element("pre", { tabindex: "0" }, text.length > 100_000 ? `${text.slice(0, 100_000)} …` : text));
}

load().catch((error) => notice(error.message));
