// The step `format-output`: gives a list of results the shape that its template has.
// format.js is the work; this file is the step around it.

import { defineStep, InvalidInput, json, text } from "gpux-step";

import { compile, entriesOf } from "./format.js";

export const step = defineStep({
  summary: "gives a list of results, such as that of top-k, the shape of a template",

  options: {
    type: "object",
    additionalProperties: false,
    required: ["template"],
    properties: {
      template: {
        description:
          "what becomes of each entry: a text with placeholders such as {label}, {score}, {percent}, {rank}, or a list or object of such; {{ and }} stand for braces",
        type: ["string", "array", "object"],
      },
      digits: { description: "digits after the point; all of them unless it is given", type: "integer", minimum: 0, maximum: 20 },
      minimum: { description: "leaves out entries whose score is less", type: "number" },
      join: { description: "gives one text instead of a list: the entries with this between them", type: "string" },
    },
  },

  configure({ template, digits, minimum, join }) {
    if (join !== undefined && typeof template !== "string") {
      throw new InvalidInput("`join` puts texts together, so `template` must be a text");
    }
    try {
      this.render = compile(template, digits);
    } catch (error) {
      throw new InvalidInput(`\`template\`: ${error.message}`);
    }
    this.keeps = ({ score }) => minimum === undefined || score >= minimum;
    this.join = join;
    return {
      inputs: { top: json({ about: "a list of objects, as top-k gives it, or of scores" }) },
      outputs: {
        formatted:
          join === undefined
            ? json({ about: "a list of what the template makes of each entry" })
            : text({ about: "what the template makes of the entries, put together" }),
      },
    };
  },

  process({ top }) {
    let formatted;
    try {
      formatted = entriesOf(top).filter(this.keeps).map(this.render);
    } catch (error) {
      if (error instanceof RangeError || error instanceof TypeError) throw new InvalidInput(error.message);
      throw error;
    }
    return { formatted: this.join === undefined ? formatted : formatted.map(String).join(this.join) };
  },
});
