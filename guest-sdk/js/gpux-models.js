// The pipeline's models, from a step. Needs `import gpux:pipeline/models@0.1.0;` in wit/world.wit,
// and `grant: { models: [NAME] }` in gpux.yml.
import { run as runModel } from "gpux:pipeline/models@0.1.0";

import { answered, lent } from "./gpux-lent.js";

/** Runs `model` on `inputs`, an object with the model's own names. Gives its outputs as an object. */
export function run(model, inputs) {
  return answered(() => runModel(model, Object.entries(inputs).map(([name, input]) => lent(name, input))));
}
