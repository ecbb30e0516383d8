// Outputs as people look at them: bars, pictures, tables, texts.

import { source } from "./exact.js";
import { bar, drawing, element, indented, number } from "./element.js";

const ROWS = 50;
const COLUMNS = 24;

// The media type of bytes in base64 that a browser shows, by how they begin.
function pictureType(text) {
  const beginnings = { iVBORw: "image/png", "/9j/": "image/jpeg", R0lGOD: "image/gif", UklGR: "image/webp", Qk: "image/bmp" };
  return Object.entries(beginnings).find(([beginning]) => text.startsWith(beginning))?.[1];
}

const isScored = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((item) => typeof item?.score === "number");
const isNumber = (value) => typeof value === "number" || source(value) !== undefined || ["NaN", "Infinity", "-Infinity"].includes(value);
const isRow = (value) => Array.isArray(value) && value.every((item) => isNumber(item) || typeof item === "boolean");
const isTable = (value) => Array.isArray(value) && value.length > 0 && value.every(isRow);

function bars(items, probabilities) {
  const most = Math.max(1, ...items.map((item) => Math.abs(item.score)));
  return element("div", { class: "bars" }, items.slice(0, ROWS).map((item, place) => {
    const name = item.label ?? item.text ?? item.class ?? item.index ?? item.word ?? place;
    const score = probabilities ? `${(item.score * 100).toFixed(2)} %` : number(item.score);
    return [element("span", {}, String(name)), bar(item.score / most), element("span", {}, score)];
  }));
}

const isPlace = (value) => Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === "number");

// The corners of what an item stands for: those of a turned box, or of an upright one.
function corners({ points, corners, box }) {
  const turned = corners ?? points;
  if (Array.isArray(turned) && turned.length >= 3 && turned.every(isPlace)) return turned;
  if (!Array.isArray(box) || box.length !== 4) return undefined;
  const [x0, y0, x1, y1] = box;
  return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];
}

// The picture that was sent, with boxes in its pixels.
function boxes(items, picture) {
  const image = element("img", { src: picture, alt: "the picture that was sent, with what was found in it" });
  const over = drawing("svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
  image.addEventListener("load", () => {
    over.setAttribute("viewBox", `0 0 ${image.naturalWidth} ${image.naturalHeight}`);
    for (const item of items) {
      const title = drawing("title", {}, String(item.label ?? item.text ?? ""));
      over.append(drawing("polygon", { points: corners(item).map((corner) => corner.join(",")).join(" ") }, title));
    }
  });
  return element("div", { class: "picture" }, image, over);
}

function table(rows) {
  const body = rows.slice(0, ROWS).map((row) => {
    const cells = row.slice(0, COLUMNS).map((cell) => element("td", {}, number(cell)));
    if (row.length > COLUMNS) cells.push(element("td", {}, "…"));
    return element("tr", {}, cells);
  });
  const whole = `${rows.length} × ${rows[0]?.length ?? 0}`;
  return [
    element("div", { class: "scroll", tabindex: "0" }, element("table", {}, element("tbody", {}, body))),
    element("p", { class: "quiet" }, rows.length > ROWS ? `${whole}; the first ${ROWS} rows` : whole),
  ];
}

function base64(text) {
  const type = pictureType(text);
  if (type) return element("img", { class: "picture", src: `data:${type};base64,${text}`, alt: "the picture that the pipeline gave" });
  return element("p", {}, `${Math.floor((text.length * 3) / 4)} bytes, in base64 below`);
}

// One output. `labels` name the elements of a row, where the pipeline says so; `probabilities` are shown in percent.
export function output(value, { labels, probabilities, picture } = {}) {
  if (typeof value === "string") return element("p", { class: "text" }, value);
  if (isNumber(value) || typeof value === "boolean") return element("p", {}, source(value) ?? String(value));
  if (typeof value?.base64 === "string" && Object.keys(value).length === 1) return base64(value.base64);
  if (isScored(value)) {
    const boxed = picture && value.every(corners);
    return [boxed && boxes(value, picture), bars(value, probabilities)];
  }
  const row = isTable(value) && value.length === 1 ? value[0] : value;
  if (Array.isArray(labels) && isRow(row) && row.length === labels.length) {
    const items = row.map((score, place) => ({ label: labels[place], score: Number(source(score) ?? score) }));
    return bars(items.sort((one, other) => other.score - one.score), probabilities);
  }
  if (isRow(value)) return table([value]);
  if (isTable(value)) return table(value);
  const text = indented(value);
  return element("pre", { tabindex: "0" }, text.length > 20_000 ? `${text.slice(0, 20_000)} …` : text);
}

const HEADINGS = {
  400: "The request does not fit",
  401: "This server wants a key",
  403: "This key may not do that",
  404: "There is no such pipeline",
  413: "The request is too large",
  415: "A body of this type is not read",
  429: "Too many requests",
  500: "A step failed",
  503: "No room for it now",
  504: "It took too long",
};

// An error of the API: what happened, where, and when to try again.
export function failure(status, error, retryAfter) {
  const { step, name, limit, value, log } = error.details ?? {};
  return element("div", { class: "wrong", role: "alert" },
    element("h3", {}, limit ? "A step ran into a limit" : (HEADINGS[status] ?? error.error ?? "It failed")),
    element("p", { class: "text" }, error.message ?? ""),
    limit && element("p", {}, `The limit is ${limit}${value === undefined ? "" : `, ${value}`}.`),
    step && element("p", { class: "quiet" }, `Step ${step}${name ? `, ${name}` : ""}`),
    retryAfter && element("p", {}, `Try again in ${retryAfter} s.`),
    log && element("pre", {}, log.join("\n")),
    element("p", { class: "quiet" }, `Status ${status}`));
}
