// Makes the component: `gpux build` runs this and says where it goes.
import { readFile, writeFile } from "node:fs/promises";

import componentizer from "componentize-qjs";
import { build } from "esbuild";

const entry = "src/step.js";
const { dependencies } = JSON.parse(await readFile("package.json", "utf8"));
const hasPackages = Object.keys(dependencies).some((name) => name !== "gpux-step");

try {
  const { component } = await componentizer.componentize({
    // Without packages, the lines of an error's stack are those of the sources.
    jsSource: hasPackages ? await bundle() : await readFile(entry, "utf8"),
    jsPath: entry,
    moduleRoot: ".",
    witPath: "wit",
    world: "step",
    // No WASI: what is not granted is not even imported.
    stubWasi: true,
    sync: true,
  });
  await writeFile(process.env.GPUX_OUTPUT ?? "{{name}}.wasm", component);
} catch ({ message }) {
  // The stack is that of this file.
  const [, missing] = /not found: .*"(gpux:[^"]+)"/.exec(message) ?? [];
  console.error(missing ? `wit/world.wit needs the line \`import ${missing};\`, since the step imports it` : message.replace(/^: /, "").trim());
  process.exitCode = 1;
}

// The step and its packages, CommonJS ones too, as one module.
async function bundle() {
  const { outputFiles } = await build({
    // gpux-step first: it prepares what packages find when they load.
    stdin: { contents: `import "gpux-step"; export * from "./${entry}";`, resolveDir: "." },
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    target: "es2023",
    // Of packages that have one, the part for browsers: it needs no Node.js.
    mainFields: ["browser", "module", "main"],
    conditions: ["browser", "module"],
    external: ["gpux:*"],
    define: { global: "globalThis", "process.env.NODE_ENV": '"production"' },
    keepNames: true,
    logLevel: "warning",
  });
  return outputFiles[0].text;
}
