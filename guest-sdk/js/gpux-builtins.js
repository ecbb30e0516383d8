// Every native step at native speed, from a step. Needs `import gpux:pipeline/builtins@0.1.0;` in
// wit/world.wit.
import { run as runBuiltin } from "gpux:pipeline/builtins@0.1.0";

import { answered, lent } from "./gpux-lent.js";

/**
 * Runs the built-in step `name` on `inputs`, in order: tensors, texts, bytes, or anything else as
 * JSON. Gives its outputs as an object.
 */
export function run(name, options, ...inputs) {
  return answered(() => runBuiltin(name, JSON.stringify(options), inputs.map((input) => lent("", input))));
}
