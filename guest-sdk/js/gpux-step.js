// What a step in JavaScript is written with. Types: gpux-step.d.ts. The contract: wit/.
//
//     import { defineStep, json, tensor } from "./gpux-step.js";
//
//     export const step = defineStep({
//       summary: "the largest score",
//       options: { type: "object", additionalProperties: false },
//       configure: () => ({
//         inputs: { scores: tensor("float32", [1, null]) },
//         outputs: { best: json() },
//       }),
//       process: ({ scores }) => ({ best: scores.values().reduce((best, score) => Math.max(best, score)) }),
//     });

import { log as writeLine } from "gpux:pipeline/log@0.1.0";
import { Tensor as Handle } from "gpux:pipeline/types@0.1.0";

/** What the caller gave cannot be worked on: throw it, and the caller is told why. */
export class InvalidInput extends Error {}

/** Lines for whoever runs the pipeline: they come with the step's error and with `--trace --json`. */
export const log = Object.freeze(
  Object.fromEntries(["debug", "info", "warn", "error"].map((level) => [level, (...words) => writeLine(level, line(words))])),
);

// Whether modules are still loading: the component is being built.
let isLoading = true;

// A sandbox has no clock; the engine's own way to say so is to stop the step without a word. Packages that ask
// for the time while they load get 0, so that a build gives the same component again.
globalThis.Date = class extends Date {
  constructor(...parts) {
    super(...(parts.length === 0 ? [Date.now()] : parts));
  }
  static now() {
    if (isLoading) return 0;
    throw new Error("a step has no clock: it cannot ask for the time");
  }
};

globalThis.console = { ...log, log: log.info, trace: log.debug };

function line(words) {
  return words
    .map((word) => {
      if (typeof word === "string") return word;
      if (word instanceof Error) return word.stack ? `${word}\n${word.stack}` : `${word}`;
      try {
        return JSON.stringify(word) ?? String(word);
      } catch {
        return String(word);
      }
    })
    .join(" ");
}

// float16 and bfloat16 are given as their bits: not every engine has an array for them.
const ARRAYS = {
  boolean: Uint8Array,
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  uint64: BigUint64Array,
  int64: BigInt64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
};

/** A tensor. Its elements lie on the host until `values` or `read` copies them. */
export class Tensor {
  #handle;

  constructor(handle) {
    this.#handle = handle;
  }

  /** A tensor of `values` in `shape`. A plain array or another typed array is converted. */
  static of(element, shape, values) {
    if (element === "text") return new Tensor(checked(() => Handle.createText(shape, values)));
    const wanted = arrayOf(element);
    const typed = values instanceof wanted ? values : wanted.from(values);
    return new Tensor(checked(() => Handle.create(element, shape, bytesOf(typed))));
  }

  /** A tensor of zeros, `false` or empty texts. */
  static zeros(element, shape) {
    return new Tensor(checked(() => Handle.zeros(element, shape)));
  }

  /** The type of the elements, such as `"float32"`. */
  get element() {
    return this.#handle.element();
  }

  /** Elements along each axis, outermost first. */
  get shape() {
    return Array.from(this.#handle.shape());
  }

  /** How many elements there are. */
  get length() {
    return this.shape.reduce((product, size) => product * size, 1);
  }

  /** All elements, copied into a typed array; for a tensor of text, an array of strings. */
  values() {
    const element = this.element;
    return element === "text" ? checked(() => this.#handle.texts()) : typed(element, this.#handle.data());
  }

  /** `count` elements from the element `start` on: a step that reads in parts stays small. */
  read(start, count) {
    const element = this.element;
    const size = arrayOf(element).BYTES_PER_ELEMENT;
    return typed(element, checked(() => this.#handle.read(start * size, count * size)));
  }

  /** Overwrites elements from the element `start` on. */
  write(start, values) {
    const wanted = arrayOf(this.element);
    const typed = values instanceof wanted ? values : wanted.from(values);
    checked(() => this.#handle.write(start * wanted.BYTES_PER_ELEMENT, bytesOf(typed)));
  }

  /** The order of the axes, `"hwc"` or `"chw"`, if it is known to be an image. */
  get layout() {
    return this.#handle.layout() ?? undefined;
  }
  set layout(layout) {
    this.#handle.setLayout(layout ?? undefined);
  }

  /** What the channels hold: `"gray"`, `"rgb"`, `"rgba"` or `"bgr"`, if known. */
  get color() {
    return this.#handle.color() ?? undefined;
  }
  set color(color) {
    this.#handle.setColor(color ?? undefined);
  }

  /** Samples a second, if it is known to be sound. */
  get sampleRate() {
    return this.#handle.sampleRate() ?? undefined;
  }
  set sampleRate(hertz) {
    this.#handle.setSampleRate(hertz ?? undefined);
  }

  /** Where the source image lies in this tensor, if known. */
  get geometry() {
    return this.#handle.geometry() ?? undefined;
  }
  set geometry(geometry) {
    this.#handle.setGeometry(geometry ?? undefined);
  }

  /** Takes over layout, color, sample rate and geometry of `source`. */
  copyMetadata(source) {
    this.#handle.copyMetadata(source.#handle);
  }

  /** The handle under it, as the contract's functions take it. */
  static handleOf(tensor) {
    return tensor.#handle;
  }
}

function arrayOf(element) {
  const array = ARRAYS[element];
  if (array) return array;
  if (element === "text") throw new TypeError("a tensor of text has no bytes; use values()");
  throw new TypeError(`there is no element type ${JSON.stringify(element)}; there are ${Object.keys(ARRAYS).join(", ")} and text`);
}

function bytesOf(typed) {
  return new Uint8Array(typed.buffer, typed.byteOffset, typed.byteLength);
}

function typed(element, bytes) {
  const array = arrayOf(element);
  const aligned = bytes.byteOffset % array.BYTES_PER_ELEMENT === 0 ? bytes : bytes.slice();
  return new array(aligned.buffer, aligned.byteOffset, aligned.byteLength / array.BYTES_PER_ELEMENT);
}

// An import's error is thrown as its text, which has no stack.
function checked(call) {
  try {
    return call();
  } catch (error) {
    throw error instanceof Error && error.payload === undefined ? error : new Error(String(error?.payload ?? error));
  }
}

const port = (kind, { about = "", optional = false } = {}) => ({ kind, about, optional });

/**
 * A port that takes or gives a tensor. `elements`: one type, a list, or none for any. `shape`: a
 * number is that many, null any number, a text any number that is the same wherever it stands.
 */
export function tensor(elements, shape, { layout, ...more } = {}) {
  const dimension = (size) =>
    size === null ? { tag: "dynamic" } : typeof size === "string" ? { tag: "named", val: size } : { tag: "fixed", val: size };
  const kind = { elements: [elements ?? []].flat(), shape: shape?.map(dimension), layout };
  return port({ tag: "tensor", val: kind }, more);
}

/** A port that takes or gives UTF-8 text. */
export const text = (more) => port({ tag: "text" }, more);

/** A port that takes or gives bytes, as a Uint8Array. */
export const bytes = (more) => port({ tag: "bytes" }, more);

/** A port that takes or gives JSON, as the value that it stands for. */
export const json = (more) => port({ tag: "json" }, more);

/** A port that takes or gives any value. */
export const any = (more) => port({ tag: "any" }, more);

const ports = (named) =>
  Object.entries(named).map(([name, { kind, about, optional }]) => ({ name, kind, optional, description: about }));

/** What the contract calls a value, as JavaScript has it. */
export function fromValue({ tag, val }) {
  if (tag === "tensor") return new Tensor(val);
  return tag === "json" ? JSON.parse(val) : val;
}

/** The value of the contract for `given`, as `kind` of the port asks for. */
export function toValue(given, kind = "any") {
  const is = given instanceof Tensor ? "tensor" : given instanceof Uint8Array ? "bytes" : typeof given === "string" ? "text" : "json";
  const tag = kind === "any" ? is : kind;
  if (tag !== "json" && tag !== is) throw new TypeError(`it is ${is}, not ${tag}`);
  if (tag === "tensor") return { tag, val: Tensor.handleOf(given) };
  if (tag !== "json") return { tag, val: given };
  const val = given instanceof Tensor ? undefined : JSON.stringify(given);
  if (val === undefined) throw new TypeError("it cannot be written as JSON");
  return { tag, val };
}

/** Makes what a module exports as `step`. */
export function defineStep({ summary, options = { type: "object", additionalProperties: false }, configure, process }) {
  const state = {};
  let outputs = {};
  return {
    describe: () => ({ summary, optionsSchema: JSON.stringify(options) }),
    configure: (given) =>
      told(() => {
        const signature = configure.call(state, JSON.parse(given));
        outputs = signature.outputs;
        return { inputs: ports(signature.inputs), outputs: ports(outputs) };
      }),
    process: (inputs) =>
      told(() => {
        const given = Object.fromEntries(inputs.map(({ name, value }) => [name, fromValue(value)]));
        const results = process.call(state, given);
        if (results instanceof Promise) throw new TypeError("`process` gave a promise; a step cannot wait, so it must not be async");
        return Object.entries(results).map(([name, value]) => {
          try {
            return { name, value: toValue(value, outputs[name]?.kind.tag) };
          } catch (error) {
            throw new TypeError(`the output \`${name}\`: ${error.message}`);
          }
        });
      }),
  };
}

// Only what the step throws on purpose is the caller's fault; the rest is told with where it happened.
function told(call) {
  isLoading = false;
  try {
    return call();
  } catch (error) {
    if (error instanceof InvalidInput) throw { tag: "invalid-input", val: error.message };
    if (error?.stack) log.error(error);
    throw { tag: "failed", val: String(error?.message ?? error) };
  }
}
