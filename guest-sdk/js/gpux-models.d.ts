import type { Value } from "./gpux-step.js";

/** Runs `model` on `inputs`, by the model's own names. Gives its outputs by name. */
export function run(model: string, inputs: Record<string, Value>): Record<string, any>;
