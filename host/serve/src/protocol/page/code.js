// A request (as request.js makes it) in the words of other programs. Nothing here needs a browser.

import { isExact, source } from "./exact.js";

// What a program takes for a file of the folder, and not for an option or its input.
const local = (name) => (name.startsWith("-") ? `./${name}` : name);
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const quoted = (text) => JSON.stringify(text);

function python(json) {
  if (json === null) return "None";
  if (json === true) return "True";
  if (json === false) return "False";
  if (source(json) !== undefined) return source(json);
  if (Array.isArray(json)) return `[${json.map(python).join(", ")}]`;
  if (typeof json === "object") {
    return `{${Object.entries(json).map(([key, value]) => `${quoted(key)}: ${python(value)}`).join(", ")}}`;
  }
  return JSON.stringify(json);
}

function curl(base, { path, kind, contentType, file, fields, json }) {
  const lines = [`curl ${shell(base + path)}`];
  if (kind === "raw") {
    lines.push(`-H ${shell(`content-type: ${contentType}`)}`, `--data-binary ${shell(`@${local(file.name)}`)}`);
  } else if (kind === "json") {
    lines.push(`-H 'content-type: application/json'`, `--data-raw ${shell(JSON.stringify(json))}`);
  } else {
    // What follows the first one is the value, and may name a file: `a=@/etc/passwd`. No name of its is said, as a
    // shell may read this line.
    if (fields.some((field) => field.name.includes("="))) {
      return "# curl cannot send a field whose name has an equals sign. Take the Python or the JavaScript code.";
    }
    for (const field of fields) {
      // curl takes what is quoted as the name, whatever it holds.
      const name = (text) => `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
      lines.push(
        field.file
          ? `-F ${shell(`${field.name}=@${name(local(field.file.name))}`)}`
          : `--form-string ${shell(`${field.name}=${field.text}`)}`,
      );
    }
  }
  return lines.join(" \\\n  ");
}

function requests(base, { path, kind, contentType, file, fields, json }) {
  const url = quoted(base + path);
  const tail = "answer.raise_for_status()\nprint(answer.json())";
  if (kind === "json") {
    return `import requests\n\nanswer = requests.post(${url}, json=${python(json)})\n${tail}`;
  }
  if (kind === "raw") {
    return `import requests

with open(${quoted(file.name)}, "rb") as file:
    answer = requests.post(${url}, data=file, headers={"content-type": ${quoted(contentType)}})
${tail}`;
  }
  const files = fields.filter((field) => field.file);
  const opened = files.map((field) => `    ${quoted(field.name)}: open(${quoted(field.file.name)}, "rb"),`);
  const texts = fields.filter((field) => !field.file).map(({ name, text }) => `    ${quoted(name)}: ${quoted(text)},`);
  return `import requests

files = {
${opened.join("\n")}
}
data = {${texts.length > 0 ? `\n${texts.join("\n")}\n` : ""}}
answer = requests.post(${url}, files=files, data=data)
${tail}`;
}

function fetched(base, { path, kind, contentType, file, fields, json }) {
  const url = quoted(base + path);
  const tail = "console.log(await answer.json());";
  const files = `import { readFile } from "node:fs/promises";

// In a browser, the file is that of an <input type="file">.
`;
  if (kind === "json") {
    const text = JSON.stringify(json);
    // A literal would be rounded, and would take this name for something else.
    const body = isExact(json) || text.includes('"__proto__"') ? quoted(text) : `JSON.stringify(${text})`;
    return `const answer = await fetch(${url}, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: ${body},
});
${tail}`;
  }
  if (kind === "raw") {
    return `${files}const body = await readFile(${quoted(file.name)});
const answer = await fetch(${url}, { method: "POST", headers: { "content-type": ${quoted(contentType)} }, body });
${tail}`;
  }
  const appended = fields.map((field) =>
    field.file
      ? `body.append(${quoted(field.name)}, new Blob([await readFile(${quoted(field.file.name)})]), ${quoted(field.file.name)});`
      : `body.append(${quoted(field.name)}, ${quoted(field.text)});`,
  );
  return `${files}const body = new FormData();
${appended.join("\n")}
const answer = await fetch(${url}, { method: "POST", body });
${tail}`;
}

export const languages = { curl, Python: requests, JavaScript: fetched };
