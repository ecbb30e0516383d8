//! JSON from strangers.

use serde_json::Value;

/// What one JSON value costs in memory, at most: `[0,0,0]` grows seventyfold when it is parsed. A
/// list that grows has room for twice what is in it, and so has an object, beside its keys' hashes.
const VALUE: usize = 2 * size_of::<Value>();

/// What a list or an object costs beside its values: there is room for four from the first on.
const ROOM: usize = 4 * size_of::<Value>();

/// A text that fits its limits, not yet read.
pub(super) struct MeasuredJson<'a> {
    text: &'a str,
    /// bytes that it takes once it is read
    pub(super) cost: usize,
}

/// A look at the depth of `text`, and at the memory that it would take.
pub(super) fn measure(text: &str, depth: usize, memory: usize) -> Result<MeasuredJson<'_>, String> {
    let JsonCount { deepest, values, nests } = count(text.as_bytes());
    if deepest > depth {
        return Err(format!("JSON nested {deepest} levels deep; {depth} are allowed (limit `json_depth`)"));
    }
    let cost = values.saturating_mul(VALUE).saturating_add(nests.saturating_mul(ROOM)).saturating_add(text.len());
    if cost > memory {
        return Err(format!("JSON of {values} values, which takes more memory than is left for it"));
    }
    Ok(MeasuredJson { text, cost })
}

impl MeasuredJson<'_> {
    pub(super) fn parse(&self) -> Result<Value, String> {
        serde_json::from_str(self.text).map_err(|error| format!("JSON that cannot be read: {error}"))
    }
}

/// Parses `text` within its limits.
pub(super) fn parse(text: &str, depth: usize, memory: usize) -> Result<Value, String> {
    measure(text, depth, memory)?.parse()
}

/// What there is in a text.
struct JsonCount {
    /// the deepest nesting
    deepest: usize,
    /// values and keys, at most
    values: usize,
    /// lists and objects
    nests: usize,
}

fn count(text: &[u8]) -> JsonCount {
    let (mut depth, mut deepest, mut values, mut nests) = (0_usize, 0, 1, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                nests += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    JsonCount { deepest, values, nests }
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_bounded_before_parsing() {
        let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&deep(8), 8, 1 << 20).is_ok());
        assert!(parse(&deep(9), 8, 1 << 20).unwrap_err().contains("9 levels deep"));
        assert!(parse(&deep(1_000_000), 120, usize::MAX).is_err());
        assert!(parse(r#"["[[[[\"[[[["]"#, 1, 1 << 20).is_ok(), "brackets in a string do not nest");
    }

    #[test]
    fn memory_is_bounded_before_parsing() {
        let wide = format!("[{}0]", "0,".repeat(1000));
        assert!(parse(&wide, 8, 1000 * VALUE).unwrap_err().contains("1002 values"));
        assert!(parse(&wide, 8, 1 << 20).is_ok());
        let lists = format!("[{}0]", "[0],".repeat(1000));
        assert!(parse(&lists, 8, 1000 * (VALUE + ROOM)).is_err(), "a list of one has room for four");
    }
}
