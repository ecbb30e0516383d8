import type { Value } from "./gpux-step.js";

/** Runs the built-in step `name` on `inputs`, in order. Gives its outputs by name. */
export function run(name: string, options: object, ...inputs: Value[]): Record<string, any>;
