// Makes the component: `gpux build` runs this and says where it goes.
import { readFile, writeFile } from "node:fs/promises";

import componentizer from "componentize-qjs";

const entry = "src/step.js";
const { component } = await componentizer.componentize({
  jsSource: await readFile(entry, "utf8"),
  jsPath: entry,
  moduleRoot: ".",
  witPath: "wit",
  world: "step",
  // No WASI: what is not granted is not even imported.
  stubWasi: true,
  sync: true,
});
await writeFile(process.env.GPUX_OUTPUT ?? "{{name}}.wasm", component);
