// The step `{{name}}`: finds the best score.
import { defineStep, InvalidInput, json, tensor } from "gpux-step";

export const step = defineStep({
  summary: "finds the best score",

  // A JSON Schema: gpux.yml is checked against it.
  options: {
    type: "object",
    additionalProperties: false,
    properties: {
      least: { description: "a score below it is not good enough", type: "number", default: 0 },
    },
  },

  // What it takes and gives, with these options. What can be prepared once belongs here.
  configure({ least = 0 }) {
    this.least = least;
    return {
      inputs: { scores: tensor("float32", [1, null], { about: "scores, such as a model's" }) },
      outputs: { best: json({ about: "{index, score}, or null where none is good enough" }) },
    };
  },

  // One request.
  process({ scores }) {
    const values = scores.values();
    if (values.length === 0) throw new InvalidInput("there are no scores");
    // Not `Math.max(...values)`: an engine takes some thousand arguments, and a tensor may hold millions.
    const index = values.reduce((best, score, index) => (score > values[best] ? index : best), 0);
    const score = values[index];
    return { best: score < this.least ? null : { index, score } };
  },
});
