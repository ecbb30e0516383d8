// The pages of a live server in a real browser, without a window: drop, paste, choose, type, run,
// look. Needs a build of gpux, chromium and playwright-core (see `just browser`). Prints what it saw
// and ends with 1 at the first thing that is not as it should be.
//
//     browser.mjs [--write]     writes docs/images/ anew

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const { chromium } = createRequire(`${root}/target/browser/`)("playwright-core");
const gpux = process.env.GPUX ?? `${root}/target/debug/gpux`;
const write = process.argv.includes("--write");
const pipeline = (name) => `tests/cases/pipelines/${name}.yml`;
const sample = (name) => readFileSync(`${root}/models/samples/${name}`).toString("base64");

async function serving(sources, use) {
  const server = spawn(gpux, ["serve", "--host", "127.0.0.1", "--port", "0", ...sources], { cwd: root, stdio: ["ignore", "inherit", "pipe"] });
  const ended = once(server, "exit");
  try {
    let base;
    for await (const line of createInterface({ input: server.stderr })) {
      base = line.match(/ready on (http:\S+)/)?.[1];
      if (base) break;
    }
    assert(base, "the server has ended before it was ready");
    server.stderr.resume();
    await use(base);
  } finally {
    server.kill("SIGTERM");
    await ended;
  }
}

// A page on which nothing may go wrong unseen: no error in a script, none of the policy, no request to anybody else.
async function opened(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 900 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`script: ${error}`));
  page.on("console", (message) => {
    // What the server refuses, the browser notes as well.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(new URL(url).origin)) wrong.push(`asks ${request.url()}`);
  });
  await page.goto(url);
  return { page, close: async () => (await context.close(), assert.deepEqual(wrong, [])) };
}

// A file as the event of this name brings it.
function bring(page, selector, event, base64, name, type) {
  return page.locator(selector).first().evaluate((node, [event, base64, name, type]) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], name, { type }));
    const key = event === "paste" ? "clipboardData" : "dataTransfer";
    const made = event === "paste" ? new ClipboardEvent(event, { [key]: data, bubbles: true }) : new DragEvent(event, { [key]: data, bubbles: true, cancelable: true });
    node.dispatchEvent(made);
  }, [event, base64, name, type]);
}

// Presses the button and waits for what comes of it.
async function run(page) {
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator('#result[aria-busy="false"]').waitFor();
}

const labels = (page) => page.locator("#result .bars > span").allTextContents();

async function digits(browser, base) {
  const { page, close } = await opened(browser, `${base}/`);
  await page.locator("#name").filter({ hasText: "digits 1.0.0" }).waitFor();
  await run(page);
  await page.getByRole("alert").filter({ hasText: "image: nothing is given" }).waitFor();

  await bring(page, ".drop", "drop", sample("seven.png"), "seven.png", "image/png");
  await page.locator(".drop img").waitFor();
  assert.match(await page.locator("#code").textContent(), /--data-binary '@seven\.png'/);
  for (const [language, part] of [["Python", 'open("seven.png", "rb")'], ["JavaScript", 'readFile("seven.png")'], ["curl", "curl '"]]) {
    await page.getByRole("button", { name: language, exact: true }).click();
    assert((await page.locator("#code").textContent()).includes(part), language);
  }
  await run(page);
  await page.locator("#result .bars").waitFor();
  assert.equal((await labels(page))[0], "seven");
  const steps = await page.locator("#steps .step-name").allTextContents();
  assert.deepEqual(steps.map((step) => step.replace(/^\d+\. /, "")), ["decode-image", "center-ink.wasm", "resize", "normalize", "model", "softmax", "top-k"]);
  const pictures = page.locator("#steps img");
  assert((await pictures.count()) >= 4);
  for (const picture of await pictures.all()) assert((await picture.evaluate((image) => image.decode().then(() => image.naturalWidth))) > 0);
  assert((await page.locator("#steps .histogram").count()) > 0);
  if (write) await page.screenshot({ path: `${root}/docs/images/serve-digits.png`, fullPage: true });

  await bring(page, "body", "paste", sample("two.jpg"), "two.jpg", "image/jpeg");
  await page.locator("#code").filter({ hasText: "two.jpg" }).waitFor();
  await page.getByLabel("show what each step did").uncheck();
  await run(page);
  await page.locator("#result .bars").filter({ hasText: "two" }).waitFor();
  assert.equal((await labels(page))[0], "two");
  assert(await page.locator("#trace-section").isHidden());

  await page.getByLabel("a file for image").setInputFiles(`${root}/gpux.yml`);
  await page.getByLabel("show what each step did").check();
  await run(page);
  await page.getByRole("alert").filter({ hasText: "not an image" }).waitFor();
  assert.match(await page.locator("#steps").textContent(), /decode-image/);

  // What a server that has no room says, as it says it.
  await page.route("**/predict*", (route) => route.fulfill({
    status: 503, contentType: "application/json", headers: { "retry-after": "2" },
    body: JSON.stringify({ error: "OverloadError", message: "the queue is full", details: {} }),
  }));
  await run(page);
  await page.getByRole("alert").filter({ hasText: "Try again in 2 s." }).waitFor();
  await page.unroute("**/predict*");
  await close();

  // In the dark, on a narrow screen: nothing lies beside the screen.
  const dark = await opened(browser, `${base}/`, { colorScheme: "dark", viewport: { width: 390, height: 800 } });
  await bring(dark.page, ".drop", "drop", sample("seven-dark.jpg"), "seven-dark.jpg", "image/jpeg");
  await run(dark.page);
  await dark.page.locator("#result .bars").waitFor();
  assert.equal((await labels(dark.page))[0], "seven");
  const [wide, background] = await dark.page.evaluate(() => [document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]);
  assert(wide <= 390, `the page is ${wide} wide`);
  assert.equal(background, "rgb(21, 24, 28)");
  await dark.close();
}

async function several(browser, base) {
  const { page, close } = await opened(browser, `${base}/?pipeline=scores`);
  await page.locator("#name").filter({ hasText: "scores" }).waitFor();
  await page.getByRole("textbox", { name: "x" }).fill("[[1, 2], [3, 4]]");
  await run(page);
  await page.locator("#result table").waitFor();
  assert.equal(await page.locator("#result td").count(), 4);
  await page.getByRole("textbox", { name: "x" }).fill("[[1, 2], [3");
  await run(page);
  await page.getByRole("alert").filter({ hasText: "this is not JSON" }).waitFor();

  await page.getByRole("combobox", { name: "Pipeline" }).selectOption("draw-boxes");
  await page.locator("#name").filter({ hasText: "draw-boxes" }).waitFor();
  await bring(page, ".drop", "drop", sample("seven.png"), "seven.png", "image/png");
  await page.getByRole("textbox", { name: "found" }).fill('[{"box": [2, 2, 40, 40], "label": "7"}]');
  assert.match(await page.locator("#code").textContent(), /-F 'photo=@"seven\.png"'/);
  await run(page);
  await page.locator("#result h3").filter({ hasText: "corner" }).waitFor();
  assert((await page.locator("#steps img").count()) >= 2);

  await page.getByRole("combobox", { name: "Pipeline" }).selectOption("never-ends");
  await page.locator("#name").filter({ hasText: "never-ends" }).waitFor();
  await page.getByRole("textbox", { name: "in" }).fill("x");
  await run(page);
  await page.getByRole("alert").filter({ hasText: "A step ran into a limit" }).waitFor();
  await close();
}

// Numbers that a double does not hold, there and back.
async function exact(browser, base) {
  const { page, close } = await opened(browser, `${base}/`);
  await page.getByRole("textbox", { name: "x" }).fill("[[9007199254740993, -9223372036854775808, 7]]");
  for (const language of ["curl", "Python", "JavaScript"]) {
    await page.getByRole("button", { name: language, exact: true }).click();
    assert.match(await page.locator("#code").textContent(), /9007199254740993/, language);
  }
  await run(page);
  await page.locator("#result td").first().waitFor();
  assert.deepEqual(await page.locator("#result td").allTextContents(), ["9007199254740993", "-9223372036854775808", "7"]);
  assert.match(await page.locator("#result pre").textContent(), /-9223372036854775808/);
  await close();
}

async function docs(browser, base) {
  const { page, close } = await opened(browser, `${base}/docs`);
  await page.locator("#predict_scores > summary").click();
  const form = page.locator("#predict_scores form");
  await form.getByLabel("body", { exact: true }).fill('{"x": [[0, 0], [0, 0]]}');
  await form.getByLabel("query").fill("timeout=3");
  await form.getByRole("button", { name: "Send" }).click();
  await form.locator("pre").filter({ hasText: "0.5" }).waitFor();
  assert.match(await form.locator("pre").textContent(), /^200/);

  // The Open Inference Protocol: a request that is there to be sent, and a pipeline to be chosen.
  await page.locator("#v2_infer_scores > summary").click();
  const inference = page.locator("#v2_infer_scores form");
  await inference.getByRole("button", { name: "Send" }).click();
  await inference.locator("pre").filter({ hasText: '"model_name": "scores"' }).waitFor();
  await page.locator("#v2_model_ready > summary").click();
  const readiness = page.locator("#v2_model_ready form");
  await readiness.getByLabel("model").selectOption("draw-boxes");
  await readiness.getByRole("button", { name: "Send" }).click();
  await readiness.locator("pre").filter({ hasText: '"name": "draw-boxes"' }).waitFor();
  await page.locator("#v2_model_ready summary").filter({ hasText: /^404/ }).waitFor();

  const api = await (await fetch(`${base}/openapi.json`)).json();
  const operations = Object.values(api.paths).flatMap((path) => Object.keys(path).filter((key) => /^(get|post)$/.test(key)));
  assert.equal(await page.locator(".operation").count(), operations.length);
  await close();
}

const COLUMNS = Array.from({ length: 13 }, (_, place) => `n${place + 1}`);

// Two pipelines with a golden case each: of thirteen numbers, and of a picture.
function golden() {
  const folder = mkdtempSync(`${tmpdir()}/gpux-browser-`);
  const write = (name, gpux, values) => {
    mkdirSync(`${folder}/${name}/tests/first`, { recursive: true });
    writeFileSync(`${folder}/${name}/gpux.yml`, `name: ${name}\nversion: 1.0.0\n${gpux}`);
    writeFileSync(`${folder}/${name}/tests/first/case.yml`, values);
  };
  const inputs = COLUMNS.map((name) => `  ${name}: { type: float32, shape: [] }\n`).join("");
  const pipeline = `pipeline:
  - stack: { in: [${COLUMNS}], out: all }
  - slice: { in: all, index: "0", out: first }
  - slice: { in: all, index: "12", out: last }
outputs:
  first: { type: float32, shape: [] }
  last: { type: float32, shape: [] }
`;
  const given = COLUMNS.map((name, place) => `  ${name}: ${place}.5\n`).join("");
  write("measurements", `inputs:\n${inputs}${pipeline}`, `inputs:\n${given}outputs: { first: 0.5, last: 12.5 }\n`);
  write("reader", `inputs:
  photo: { type: image }
  note: { type: text, default: none }
pipeline:
  - decode-image: { in: photo, channels: gray, out: gray }
  - resize: { in: gray, size: [4, 4], out: small }
outputs:
  small: { type: uint8 }
`, "inputs:\n  photo: { file: seven.png }\noutputs: {}\n");
  copyFileSync(`${root}/models/samples/seven.png`, `${folder}/reader/tests/first/seven.png`);
  return folder;
}

// On a phone: a sample to try and its code before anything was typed, numbers as fields, tables, the result above the
// code.
async function samples(browser, base) {
  const phone = { viewport: { width: 390, height: 800 }, acceptDownloads: true };
  const { page, close } = await opened(browser, `${base}/?pipeline=measurements`, phone);
  await page.locator("#code").filter({ hasText: '"n13":12.5' }).waitFor();
  assert.equal(await page.getByRole("textbox", { name: "n13" }).inputValue(), "12.5");
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  assert(height < 1600, `thirteen numbers take ${height} px`);
  const top = async (selector) => (await page.locator(selector).boundingBox()).y;
  assert((await top("#run")) < (await top("#answer")) && (await top("#answer")) < (await top("#code")));
  await run(page);
  assert.deepEqual(await page.locator("#result > p:not(.quiet)").allTextContents(), ["0.5", "12.5"]);

  await page.getByRole("textbox", { name: "n1", exact: true }).fill("one");
  await run(page);
  await page.getByRole("alert").filter({ hasText: "n1: one is no number" }).waitFor();
  await page.getByRole("textbox", { name: "n1", exact: true }).fill("-.25e1");
  await run(page);
  await page.locator("#result > p").filter({ hasText: /^-2\.5$/ }).waitFor();

  await page.getByRole("button", { name: "Clear" }).click();
  await page.locator("#code").filter({ hasText: '"n13":0' }).waitFor();
  await run(page);
  await page.getByRole("alert").filter({ hasText: "n1, n2, n3" }).waitFor();

  await page.getByText("Or a table (CSV)").click();
  const rows = Array.from({ length: 60 }, (_, row) => COLUMNS.map((_, place) => row + place).join(","));
  const buffer = Buffer.from([COLUMNS.join(","), ...rows].join("\n"));
  await page.getByLabel("a table").setInputFiles({ name: "many.csv", mimeType: "text/csv", buffer });
  assert.match(await page.locator("#code").textContent(), /text\/csv[^]*@many\.csv/);
  await run(page);
  assert.equal(await page.locator("#result tbody tr").count(), 50);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByText("Save as CSV").click()]);
  const lines = readFileSync(await download.path(), "utf8").split("\r\n");
  assert.deepEqual([lines.length, lines[0], lines[60]], [62, "first,last", "59,71"]);

  await page.getByRole("combobox", { name: "Pipeline" }).selectOption("reader");
  await page.locator(".drop img").first().waitFor();
  assert.match(await page.locator("#code").textContent(), /photo=@"photo\.png"/);
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByText("Save photo.png").click()]);
  assert.equal(readFileSync(await saved.path()).toString("base64"), sample("seven.png"));
  await run(page);
  await page.locator("#result h3").filter({ hasText: "small" }).waitFor();
  await bring(page, ".drop", "drop", sample("two.jpg"), "two.jpg", "image/jpeg");
  await page.locator("#code").filter({ hasText: "two.jpg" }).waitFor();
  assert.equal(await page.getByText("Save photo.png").count(), 0);
  assert((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
  await close();

  const api = await opened(browser, `${base}/docs`, phone);
  const operation = api.page.locator("#predict_measurements");
  await operation.locator("> summary").click();
  await operation.getByRole("button", { name: "Send" }).click();
  await operation.locator("form pre").filter({ hasText: '"last": 12.5' }).waitFor();
  // A picture is too long for an example of the document.
  const reader = api.page.locator("#predict_reader");
  await reader.locator("> summary").click();
  await api.page.waitForFunction(() => document.querySelector("#predict_reader textarea").value.includes("base64"));
  await reader.getByRole("button", { name: "Send" }).click();
  await reader.locator("form pre").filter({ hasText: '"small"' }).waitFor();
  const [send, answers] = [await operation.locator("form").boundingBox(), await operation.getByText("Answers").boundingBox()];
  assert(send.y < answers.y);
  assert((await api.page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
  await api.close();
}

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
try {
  await serving(["."], (base) => digits(browser, base));
  console.log("digits: dropped, pasted, chosen, refused; light and dark");
  await serving(["--allow-outside", ".", ...["scores", "draw-boxes", "never-ends"].map(pipeline)], async (base) => {
    await several(browser, base);
    console.log("several pipelines: numbers, two inputs, a limit");
    await docs(browser, base);
    console.log("docs: an operation tried");
  });
  const folder = golden();
  try {
    // What golden cases give comes from the process of a pipeline as from the server's own.
    await serving([folder, "--isolation", "pipeline"], (base) => samples(browser, base));
  } finally {
    rmSync(folder, { recursive: true });
  }
  console.log("golden cases: samples, fields for numbers, tables, on a phone");
  await serving(["tests/models/flip-int64.onnx"], (base) => exact(browser, base));
  console.log("numbers: as they were typed");
} finally {
  await browser.close();
}
