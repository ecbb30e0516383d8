// The trace of a request: a row a step.

import { bar, bytes, drawing, element, number } from "./element.js";

function histogram({ histogram: counts, min, max }) {
  const most = Math.max(...counts);
  const bars = counts.map((count, place) => {
    const height = (count / most) * 100;
    return drawing("rect", { x: place, y: 100 - height, width: 0.9, height });
  });
  const label = `how the numbers are spread from ${number(min)} to ${number(max)}`;
  const view = { class: "histogram", viewBox: `0 0 ${counts.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return drawing("svg", view, bars);
}

function gave(preview) {
  const { name, kind, image, numbers, statistics, text, json, shortened } = preview;
  const shown = [];
  if (image) shown.push(element("img", { src: image, alt: `${name} after this step` }));
  if (text !== undefined) shown.push(element("pre", { class: "text" }, shortened ? `${text} …` : text));
  else if (json !== undefined) shown.push(element("pre", { class: "text" }, JSON.stringify(json)));
  else if (numbers !== undefined && !image) shown.push(element("pre", {}, JSON.stringify(numbers, (_, value) => (typeof value === "number" ? Number(value.toPrecision(5)) : value))));
  if (statistics && (numbers === undefined || image)) {
    const { min, max, mean, deviation, not_finite: odd, sampled } = statistics;
    const extra = odd > 0 ? `, ${odd} not finite` : "";
    const line = `${number(min)} to ${number(max)}, mean ${number(mean)} ± ${number(deviation)}${extra}`;
    shown.push(element("div", {}, histogram(statistics), element("p", { class: "quiet" }, sampled ? `${line} (of a sample)` : line)));
  }
  return element("div", {}, element("p", { class: "quiet kind" }, `${name}: ${kind}, ${bytes(preview.bytes)}`), shown);
}

// The steps and models that a step called, those that they called further in.
function called(calls) {
  const row = ({ name, count, failed, time_ms: time, depth }) => {
    const line = `${name} × ${count}, ${number(time)} ms${failed ? `, ${failed} failed` : ""}`;
    return element("li", { class: `depth-${Math.min(depth ?? 0, 3)}` }, line);
  };
  return element("ul", { class: "calls quiet" }, calls.map(row));
}

export function steps(trace) {
  const longest = Math.max(...trace.steps.map((step) => step.time_ms), 1e-6);
  return trace.steps.map((step) =>
    element("li", {},
      element("div", {},
        element("div", { class: "step-name" }, `${step.number}. ${step.name}`),
        element("div", {}, `${number(step.time_ms)} ms`),
        bar(step.time_ms / longest),
        step.memory !== undefined && element("div", { class: "quiet" }, `sandbox: ${bytes(step.memory)}`),
        step.calls && called(step.calls)),
      element("div", { class: "gave" },
        step.failed && element("p", { class: "wrong text" }, step.failed),
        step.gave.map(gave),
        step.log && element("pre", {}, step.log.join("\n")))));
}

export function summary(trace, whole) {
  const parts = [`waiting ${number(trace.queued_ms)} ms`, `reading ${number(trace.read_ms)} ms`];
  parts.push(`steps ${number(trace.steps_ms)} ms`, `there and back ${number(whole)} ms`);
  return parts.join(" · ");
}
