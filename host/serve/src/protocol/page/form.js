// The form: a field for each input, filled with a sample where there is one.

import { element, number } from "./element.js";
import { source } from "./exact.js";

// The media type of a file and the ending of its name, by how it begins.
const BEGINNINGS = [
  [[0x89, 0x50, 0x4e, 0x47], "image/png", "png"],
  [[0xff, 0xd8, 0xff], "image/jpeg", "jpg"],
  [[0x47, 0x49, 0x46], "image/gif", "gif"],
  [[0x42, 0x4d], "image/bmp", "bmp"],
  [[0x49, 0x49, 0x2a], "image/tiff", "tif"],
  [[0x4d, 0x4d, 0x00], "image/tiff", "tif"],
  [[0x66, 0x4c, 0x61, 0x43], "audio/flac", "flac"],
  [[0x4f, 0x67, 0x67, 0x53], "audio/ogg", "ogg"],
  [[0x49, 0x44, 0x33], "audio/mpeg", "mp3"],
];

function fileOf(name, base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const word = (start) => String.fromCharCode(...bytes.slice(start, start + 4));
  const riff = word(0) === "RIFF" && { WAVE: ["audio/wav", "wav"], WEBP: ["image/webp", "webp"] }[word(8)];
  const known = BEGINNINGS.find(([beginning]) => beginning.every((byte, place) => bytes[place] === byte));
  const [type, ending] = riff || known?.slice(1) || ["application/octet-stream", "bin"];
  return new File([bytes], `${name.replace(/[^\w-]/g, "_")}.${ending}`, { type });
}

const isNumeric = (input) => /^(u?int|b?float)/.test(input.type);

// The sizes of what one request gives: a batch of any size is of one.
function sizes({ shape }) {
  return shape?.map((size, place) => (size < 0 && place === 0 && shape.length > 1 ? 1 : size));
}

// Whether each of the input's numbers has a name, so that it gets a field of its own.
function hasNumberFields(input) {
  const count = sizes(input)?.reduce((product, size) => (size < 0 ? NaN : product * size), 1);
  return isNumeric(input) && (count === 1 || (count > 0 && input.columns?.length === count));
}

// The texts as JSON of this shape.
function nested(texts, [size, ...rest]) {
  if (size === undefined) return texts[0];
  const step = texts.length / size;
  return `[${Array.from({ length: size }, (_, place) => nested(texts.slice(place * step, (place + 1) * step), rest)).join(", ")}]`;
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

// The number as JSON has it, where people write `+1`, `.5`, `1.` or `nan`.
function jsonNumber(name, text) {
  const special = { nan: '"NaN"', inf: '"Infinity"', infinity: '"Infinity"', "-inf": '"-Infinity"', "-infinity": '"-Infinity"' };
  if (special[text.toLowerCase()]) return special[text.toLowerCase()];
  if (!NUMBER.test(text)) throw new Error(`${name}: ${text} is no number`);
  const [digits, exponent] = text.replace("+", "").split(/(?=e)/i);
  const plain = digits.replace(/^(-?)\./, "$10.").replace(/\.$/, "").replace(/^(-?)0+(?=\d)/, "$1");
  return plain + (exponent ?? "");
}

function numberField(name, placeholder, value, change) {
  const field = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", placeholder, input: change });
  if (value !== undefined && value !== null) field.value = source(value) ?? String(value);
  return { name, field, node: element("label", { class: "number" }, element("span", {}, name), field) };
}

// Fields for numbers. `set` gets the input's value, none if all of them are empty.
function numberFields(input, sample, set) {
  const flat = [sample].flat(Infinity);
  const names = sizes(input).every((size) => size === 1) && !input.columns ? [input.name] : input.columns;
  const change = () => {
    const texts = parts.map(({ field }) => field.value.trim());
    if (texts.every((text) => !text)) return set(undefined);
    const missing = parts.filter((_, place) => !texts[place]).map(({ name }) => name);
    set({
      get text() {
        if (missing.length > 0) throw new Error(`${missing.join(", ")}: nothing is given`);
        return nested(texts.map((text, place) => jsonNumber(names[place], text)), sizes(input));
      },
    });
  };
  const parts = names.map((name, place) => numberField(name, input.type, flat[place], change));
  if (sample !== undefined) change();
  return parts.map(({ node }) => node);
}

function area(input, sample, set) {
  const examples = { text: "a text", "any value": "a text, or JSON", JSON: "JSON" };
  const example = examples[input.type] ?? "JSON, such as nested lists";
  const write = (event) => set(event.target.value.trim() ? { text: event.target.value } : undefined);
  const node = element("textarea", { rows: 4, placeholder: example, "aria-label": input.name, input: write, spellcheck: "false" });
  if (sample !== undefined) {
    node.value = typeof sample === "string" ? sample : JSON.stringify(sample);
    set({ text: node.value });
  }
  return node;
}

// A place for a file. `show` gives what is seen of it.
export function drop(label, accept, take, show) {
  const seen = element("div");
  const put = (file) => {
    if (!file) return;
    seen.replaceChildren(...show(file));
    take(file);
  };
  const chooser = element("input", { type: "file", accept, "aria-label": label, change: (event) => put(event.target.files[0]) });
  const zone = element("label", {
    class: "drop",
    dragover: (event) => (event.preventDefault(), zone.classList.add("over")),
    dragleave: () => zone.classList.remove("over"),
    drop: (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      put(event.dataTransfer.files[0]);
    },
  }, "Drop, paste or choose a file", chooser, seen);
  zone.take = put;
  zone.clear = () => (seen.replaceChildren(), (chooser.value = ""));
  return zone;
}

// What stands beside a sample's file, so that the code to copy finds it.
function saved(file) {
  const link = element("a", { href: URL.createObjectURL(file), download: file.name }, `Save ${file.name}`);
  return element("p", { class: "quiet" }, link, " for the code below");
}

function field(input, sample, set, show) {
  const legend = element("legend", {}, input.name, input.required ? "" : " (may be left out)");
  const about = input.description && element("p", { class: "quiet" }, input.description);
  const shape = input.shape ? `[${input.shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]` : "";
  const kind = element("p", { class: "quiet" }, `${input.media_type ?? input.type}${shape}`);
  const options = { class: "field", "data-input": input.name };
  if (hasNumberFields(input)) {
    return element("fieldset", options, legend, about, kind, element("div", { class: "numbers" }, numberFields(input, sample, set)));
  }
  const isFile = ["bytes", "any value"].includes(input.type) && typeof sample?.base64 === "string";
  let link;
  const change = (value) => {
    link?.remove();
    set(value);
  };
  const text = input.type !== "bytes" && area(input, isFile ? undefined : sample, (value) => (zone.clear(), change(value)));
  const accept = input.media_type ?? (input.type === "text" ? "text/*" : false);
  const zone = drop(`a file for ${input.name}`, accept, (file) => (text && (text.value = ""), change({ file })), show);
  const whole = element("fieldset", options, legend, about, kind, text, zone);
  if (isFile) {
    const file = fileOf(input.name, sample.base64);
    zone.take(file);
    link = saved(file);
    whole.append(link);
  }
  return whole;
}

// Fields for all inputs. `set(input, value)` gets a value `{text}` or `{file}` as it changes, none where there is none.
export function fields(inputs, sample, set, show) {
  // Inputs of one number lie beside each other, without a frame of their own.
  const isLone = (input) => hasNumberFields(input) && !input.columns;
  const nodes = inputs.filter((input) => !isLone(input)).map((input) => field(input, sample?.[input.name], (value) => set(input, value), show));
  const lone = inputs.filter(isLone).map((input) => {
    const [node] = numberFields(input, sample?.[input.name], (value) => set(input, value));
    node.dataset.input = input.name;
    if (input.description) node.title = input.description;
    if (!input.required) node.firstChild.append(" (may be left out)");
    return node;
  });
  return lone.length > 0 ? [...nodes, element("div", { class: "numbers" }, lone)] : nodes;
}

// Whether the columns of a table are known, so that it can be sent with its header.
export const takesTable = (inputs) => inputs.length > 0 && inputs.every(hasNumberFields) && (inputs.length > 1 || inputs[0].columns);

// A value for each required input that has none, so that there is code to copy before anything was tried.
export function withExamples(inputs, values) {
  const example = (input) => {
    if (input.type === "bytes") {
      const name = { "image/*": "photo.jpg", "audio/*": "sound.wav" }[input.media_type] ?? "file.bin";
      return { file: { name, type: { jpg: "image/jpeg", wav: "audio/wav" }[name.split(".")[1]] ?? "" } };
    }
    if (input.type === "text" || input.type === "any value") return { text: "a text" };
    if (input.type === "JSON") return { text: "{}" };
    const shape = (input.shape ?? [1]).map((size) => (size < 0 ? 1 : size));
    const count = shape.reduce((product, size) => product * size, 1);
    if (count > 64) return { file: { name: `${input.name}.npy`, type: "" } };
    const zero = { bool: "false", string: '""' }[input.type] ?? "0";
    return { text: nested(Array(count).fill(zero), shape) };
  };
  const missing = inputs.filter((input) => input.required && !values[input.name]);
  return { ...values, ...Object.fromEntries(missing.map((input) => [input.name, example(input)])) };
}

// Several results as a table, if each is a number or a short text; none otherwise.
export function resultTable(items) {
  const isCell = (value) => ["number", "boolean"].includes(typeof value) || source(value) !== undefined || (typeof value === "string" && value.length <= 200);
  if (!Array.isArray(items) || items.length === 0) return undefined;
  const names = Object.keys(items[0] ?? {});
  const rows = items.map((item) => names.map((name) => item?.[name]));
  return names.length > 0 && rows.every((row) => row.every(isCell)) ? { names, rows } : undefined;
}

// A table as CSV (RFC 4180).
export function csv({ names, rows }) {
  const cell = (value) => {
    const text = source(value) ?? String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

// The same to look at: its first rows.
export function seenTable({ names, rows }, most) {
  const head = element("tr", {}, element("th", {}, "#"), names.map((name) => element("th", {}, name)));
  const body = rows.slice(0, most).map((row, place) =>
    element("tr", {}, element("th", {}, place + 1), row.map((cell) => element("td", {}, typeof cell === "string" ? cell : number(cell)))));
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {}, element("thead", {}, head), element("tbody", {}, body)));
}
