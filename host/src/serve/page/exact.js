// JSON whose numbers stay as they are written: one that a double does not hold is kept as its text, where the
// language has `JSON.rawJSON` (2025); elsewhere it is the nearest double.

const isLossy = (value, source) =>
  !Number.isFinite(value) || Object.is(value, -0) || (!Number.isSafeInteger(value) && /^-?\d+$/.test(source));

export function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && JSON.rawJSON && context?.source && isLossy(value, context.source)
      ? JSON.rawJSON(context.source)
      : value);
}

// The text of a number that is kept so; none for anything else.
export const source = (value) => (JSON.isRawJSON?.(value) ? value.rawJSON : undefined);

// Whether there is such a number in it.
export const isExact = (json) =>
  source(json) !== undefined || (typeof json === "object" && json !== null && Object.values(json).some(isExact));
