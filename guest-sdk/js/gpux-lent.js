// What gpux-builtins.js and gpux-models.js share: values lent to a call, and its answer.
import { fromValue, InvalidInput, toValue } from "./gpux-step.js";

export function lent(name, given) {
  return { name, value: toValue(given) };
}

export function answered(call) {
  let outputs;
  try {
    outputs = call();
  } catch (error) {
    const { tag, val } = error?.payload ?? error;
    if (tag === "invalid-input") throw new InvalidInput(val);
    throw tag === "failed" ? new Error(val) : error;
  }
  return Object.fromEntries(outputs.map(({ name, value }) => [name, fromValue(value)]));
}
