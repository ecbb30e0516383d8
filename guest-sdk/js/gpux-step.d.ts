export type Element =
  | "boolean" | "uint8" | "int8" | "uint16" | "int16" | "uint32" | "int32" | "uint64" | "int64"
  | "float16" | "bfloat16" | "float32" | "float64";

/** What `values` and `read` give. float16 and bfloat16 are given as their bits. */
export type Elements =
  | Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array
  | BigUint64Array | BigInt64Array | Float32Array | Float64Array;

export type Layout = "hwc" | "chw";
export type Color = "gray" | "rgb" | "rgba" | "bgr";

/** How an image was placed into a tensor: `xHere = xSource * scaleX + offsetX`, in pixels; the same for y. */
export interface Geometry {
  sourceWidth: number;
  sourceHeight: number;
  scaleX: number;
  scaleY: number;
  offsetX: number;
  offsetY: number;
}

/** A tensor. Its elements lie on the host until `values` or `read` copies them. */
export class Tensor {
  static of(element: Element, shape: number[], values: Elements | Iterable<number> | Iterable<bigint>): Tensor;
  static of(element: "text", shape: number[], values: string[]): Tensor;
  static zeros(element: Element | "text", shape: number[]): Tensor;
  readonly element: Element | "text";
  /** Elements along each axis, outermost first. */
  readonly shape: number[];
  /** How many elements there are. */
  readonly length: number;
  /** All elements, copied; for a tensor of text, an array of strings. */
  values(): any;
  /** `count` elements from the element `start` on. */
  read(start: number, count: number): Elements;
  /** Overwrites elements from the element `start` on. */
  write(start: number, values: Elements | Iterable<number> | Iterable<bigint>): void;
  layout: Layout | undefined;
  color: Color | undefined;
  /** Samples a second. */
  sampleRate: number | undefined;
  geometry: Geometry | undefined;
  copyMetadata(source: Tensor): void;
}

/** What the caller gave cannot be worked on: throw it, and the caller is told why. */
export class InvalidInput extends Error {}

export const log: Record<"debug" | "info" | "warn" | "error", (...words: unknown[]) => void>;

export interface PortOptions {
  /** One line for people. */
  about?: string;
  /** An input that may be left out. */
  optional?: boolean;
}

export interface Port {
  kind: { tag: string; val?: unknown };
  about: string;
  optional: boolean;
}

/**
 * A tensor. `elements`: one type, a list, or none for any. `shape`: a number is that many, null any
 * number, a text any number that is the same wherever it stands.
 */
export function tensor(
  elements?: Element | "text" | (Element | "text")[],
  shape?: (number | null | string)[],
  options?: PortOptions & { layout?: Layout },
): Port;
export function text(options?: PortOptions): Port;
export function bytes(options?: PortOptions): Port;
export function json(options?: PortOptions): Port;
export function any(options?: PortOptions): Port;

/** A tensor, a text, bytes, or anything that JSON can say. */
export type Value = Tensor | string | Uint8Array | unknown;

export interface Definition<State = any> {
  /** One line for people: what the step does. */
  summary: string;
  /** The JSON Schema of the options. */
  options?: object;
  /** Sets the step up. What it puts on `this`, `process` finds there. */
  configure(this: State, options: any): { inputs: Record<string, Port>; outputs: Record<string, Port> };
  /** Works on one request: inputs by name, outputs by name. */
  process(this: State, inputs: Record<string, any>): Record<string, Value>;
}

/** Makes what a module exports as `step`. */
export function defineStep(definition: Definition): object;
