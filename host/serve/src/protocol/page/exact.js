// JSON whose numbers stay as they are written: one that a double does not hold is kept as its text, where the
// language has `JSON.rawJSON` (2025); elsewhere it is the nearest double.

const isLossy = (value, source) => !Number.isFinite(value) || (!Number.isSafeInteger(value) && /^-?\d+$/.test(source));

const kept = (lossy) => (_, value, context) =>
  typeof value === "number" && context?.source && lossy(value, context.source) ? JSON.rawJSON(context.source) : value;

// What somebody typed: a zero keeps its sign, too, which JSON.stringify would not write.
export const typed = (text) =>
  JSON.parse(text, JSON.rawJSON && kept((value, source) => Object.is(value, -0) || isLossy(value, source)));

// What a server gave.
export const parse = (text) => JSON.parse(text, JSON.rawJSON && kept(isLossy));

// The text of a number that is kept so; none for anything else.
export const source = (value) => (JSON.isRawJSON?.(value) ? value.rawJSON : undefined);

// Whether there is such a number in it.
export const isExact = (json) =>
  source(json) !== undefined || (typeof json === "object" && json !== null && Object.values(json).some(isExact));
