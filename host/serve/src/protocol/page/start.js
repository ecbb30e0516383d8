// The page to try pipelines on.

import { languages } from "./code.js";
import { byId, element, indented, root } from "./element.js";
import { parse } from "./exact.js";
import { csv, drop, fields, resultTable, seenTable, takesTable, withExamples } from "./form.js";
import { options, request } from "./request.js";
import { failure, output } from "./result.js";
import { steps, summary } from "./steps.js";

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const key = () => byId("key").value;

// Requests of a table whose results are shown.
const ROWS = 50;

// What the page shows now.
let info;
let path = `${root}/predict`;
let values = {};
let table;
let language = "curl";
let picture;

async function asked(url) {
  for (;;) {
    const answer = await fetch(url, { headers: key() ? { authorization: `Bearer ${key()}` } : {} });
    if (answer.ok) return parse(await answer.text());
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
  notice("");
  document.title = `gpux: ${info.name}`;
  byId("name").textContent = `${info.name} ${info.version}`;
  byId("description").textContent = info.description ?? "";
  byId("steps-line").textContent = `${info.steps.join(" → ")} · ${info.engine}`;
  const sample = info.sample ? await asked(`${prefix}/sample`).catch(() => undefined) : undefined;
  fill(sample);
  byId("trace").disabled = !info.trace;
  byId("trace").checked = info.trace;
  byId("result").replaceChildren(element("p", { class: "quiet" }, "Nothing has run yet."));
  for (const id of ["about", "columns"]) byId(id).hidden = false;
  byId("trace-section").hidden = true;
}

// Makes the form anew, with this sample in it if there is one.
function fill(sample) {
  values = {};
  table = undefined;
  picture = undefined;
  const set = (input, value) => {
    if (value) values[input.name] = value;
    else delete values[input.name];
    table = undefined;
    tables.forEach((zone) => zone.clear());
    code();
  };
  const take = (file) => {
    table = file;
    code();
  };
  const named = (file) => [`${file.name}, ${file.size} bytes: each row is a request`];
  const tables = takesTable(info.inputs) ? [drop("a table", ".csv,.tsv,text/csv", take, named)] : [];
  const parts = fields(info.inputs, sample, set, shown);
  byId("fields").replaceChildren(...parts,
    ...tables.map((zone) => element("details", {}, element("summary", {}, "Or a table (CSV), a request a row"), zone)));
  byId("sample").hidden = !sample;
  code();
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
  const free = zones.find((zone) => !values[zone.closest("fieldset")?.dataset.input]) ?? zones[0];
  if (file && free) {
    event.preventDefault();
    free.take(file);
  }
});

function code() {
  let text;
  try {
    text = languages[language](location.origin, request(info, path, withExamples(info.inputs, values), table));
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

byId("clear").addEventListener("click", () => fill());

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
  // A trace is of one request.
  const traced = byId("trace").checked && !table;
  const sent = options(request(info, path, values, table), key());
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
  const several = resultTable(outputs);
  if (several) {
    const file = URL.createObjectURL(new Blob([csv(several)], { type: "text/csv" }));
    const rows = several.rows.length > ROWS ? `${several.rows.length} rows; the first ${ROWS}` : `${several.rows.length} rows`;
    return [seenTable(several, ROWS), element("p", { class: "quiet" }, rows, " · ", element("a", { href: file, download: "results.csv" }, "Save as CSV"))];
  }
  if (Array.isArray(outputs)) return outputs.slice(0, ROWS).map((one, place) => [element("h3", {}, `request ${place + 1}`), results(one)]);
  return Object.entries(outputs).map(([name, value]) => {
    const { labels, probabilities } = info.outputs.find((known) => known.name === name) ?? {};
    return [element("h3", {}, name), output(value, { labels, probabilities, picture })];
  });
}

function raw(json) {
  const text = indented(json);
  return element("details", {}, element("summary", {}, "JSON"),
    element("pre", { tabindex: "0" }, text.length > 100_000 ? `${text.slice(0, 100_000)} …` : text));
}

load().catch((error) => notice(error.message));
