// Templates: plain JavaScript that knows nothing of gpux.

const PLACEHOLDER = /\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}/g;

/**
 * Makes of `template` a function from an entry to its rendering. A text is filled in; a list or an
 * object keeps its shape, each text in it filled in; anything else stays as it is.
 */
export function compile(template, digits) {
  if (typeof template === "string") return compileText(template, digits);
  if (Array.isArray(template)) {
    const items = template.map((item) => compile(item, digits));
    return (entry) => items.map((item) => item(entry));
  }
  if (template !== null && typeof template === "object") {
    const members = Object.entries(template).map(([key, value]) => [key, compile(value, digits)]);
    return (entry) => Object.fromEntries(members.map(([key, value]) => [key, value(entry)]));
  }
  return () => template;
}

function compileText(text, digits) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(PLACEHOLDER)) {
    parts.push(brace(text.slice(end, found.index), text));
    parts.push(found[1] === undefined ? found[0][0] : { name: found[1] });
    end = found.index + found[0].length;
  }
  parts.push(brace(text.slice(end), text));
  const filled = parts.filter((part) => part !== "");
  // A placeholder alone keeps its type: a number stays a number.
  if (filled.length === 1 && filled[0].name) return (entry) => rounded(lookUp(entry, filled[0].name), digits);
  return (entry) => filled.map((part) => (part.name ? written(lookUp(entry, part.name), digits) : part)).join("");
}

function brace(text, template) {
  if (/[{}]/.test(text)) throw new SyntaxError(`a brace in ${JSON.stringify(template)} belongs to no placeholder; write {{ or }} for a brace`);
  return text;
}

function lookUp(entry, name) {
  if (Object.hasOwn(entry, name)) return entry[name];
  throw new RangeError(`an entry has no \`${name}\`; it has ${Object.keys(entry).join(", ")}`);
}

function rounded(value, digits) {
  return typeof value === "number" && digits !== undefined ? Number(value.toFixed(digits)) : value;
}

function written(value, digits) {
  if (typeof value === "string") return value;
  if (typeof value !== "number") return JSON.stringify(value);
  // An index stays whole; everything else gets all its digits.
  return digits === undefined || Number.isInteger(value) ? String(value) : value.toFixed(digits);
}

/**
 * The entries of a result: a list of objects as `top-k` gives it, or a list of scores. Each gets
 * its `rank`, from 1, and where it has a score, its `percent`.
 */
export function entriesOf(result) {
  if (!Array.isArray(result)) throw new TypeError("it takes a list: of the objects of `top-k`, or of scores");
  return result.map((item, index) => {
    const entry = typeof item === "object" && item !== null && !Array.isArray(item) ? item : { index, score: item };
    const percent = typeof entry.score === "number" ? { percent: entry.score * 100 } : {};
    return { rank: index + 1, ...percent, ...entry };
  });
}
