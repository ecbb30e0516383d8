// Makes the component format-output.wasm of src/step.js: npm install && node build.mjs
import { readFile, writeFile } from "node:fs/promises";

import componentizer from "componentize-qjs";

const entry = "src/step.js";
const { component } = await componentizer.componentize({
  jsSource: await readFile(entry, "utf8"),
  jsPath: entry,
  // Where imports may lie: gpux-step is a folder of this repository.
  moduleRoot: "../../..",
  witPath: "wit",
  world: "step",
  // No WASI: what is not granted is not even imported.
  stubWasi: true,
  sync: true,
});
await writeFile(process.env.GPUX_OUTPUT ?? "format-output.wasm", component);
