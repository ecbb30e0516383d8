//! JSON as a tree, of a size that has some use: a value is two bytes of text and some hundred in
//! memory, and what takes long to make takes long to drop.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value as Json};

/// Memory that the trees of one text take at most, in bytes.
pub(crate) const MAX_MEMORY: usize = 64 << 20;

/// A value where it lies.
pub(super) const VALUE: usize = size_of::<Json>();

/// Levels that a text without a bound of its own may nest; `serde_json` rejects more than 128.
const MAX_LEVELS: usize = 128;

/// A list beside its values.
pub(super) const LIST: usize = 64;

/// The bytes of an object besides its fields: its table of names with space for a few.
pub(super) const OBJECT: usize = 256;

/// The name of a field, with its place in the table.
pub(super) const NAME: usize = 128;

/// A tree that a client's text may become.
#[derive(Debug, Default)]
pub struct BoundedJsonTree(
    /// the tree
    pub Json,
);

impl<'de> Deserialize<'de> for BoundedJsonTree {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        TreeSeed(&TreeBudget::default()).deserialize(json).map(Self)
    }
}

/// Why a text does not become a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonTreeError {
    /// it nests deeper than this many levels
    #[error("JSON nested deeper than {0} levels")]
    TooDeep(usize),
    /// its tree takes more memory than it may
    #[error("JSON whose values take more memory than is left for it")]
    TooLarge,
    /// it is not JSON, or repeats a field
    #[error("JSON that cannot be read: {0}")]
    Invalid(String),
}

impl BoundedJsonTree {
    /// Parses a text, and returns the bytes that its tree takes: at most `max_memory`, with the text's own. Lists and
    /// objects nest `max_depth` levels deep at most.
    pub fn parse(text: &str, max_depth: usize, max_memory: usize) -> Result<(Json, usize), JsonTreeError> {
        let memory = max_memory.checked_sub(text.len()).ok_or(JsonTreeError::TooLarge)?;
        let budget = TreeBudget { left: Cell::new(Some(memory)), levels: Cell::new(Some(max_depth)) };
        let mut json = serde_json::Deserializer::from_str(text);
        let tree = TreeSeed(&budget).deserialize(&mut json).and_then(|tree| json.end().map(|()| tree));
        match (tree, budget.left.get(), budget.levels.get()) {
            (_, _, None) => Err(JsonTreeError::TooDeep(max_depth)),
            (_, None, _) => Err(JsonTreeError::TooLarge),
            (Err(error), ..) => Err(JsonTreeError::Invalid(error.to_string())),
            (Ok(tree), Some(left), _) => Ok((tree, max_memory - left)),
        }
    }
}

/// The remaining budget of the trees of a text.
pub(crate) struct TreeBudget {
    /// bytes; `None` once there were too few
    left: Cell<Option<usize>>,
    /// levels of nesting; `None` once there were too few
    levels: Cell<Option<usize>>,
}

impl Default for TreeBudget {
    fn default() -> Self {
        Self { left: Cell::new(Some(MAX_MEMORY)), levels: Cell::new(Some(MAX_LEVELS)) }
    }
}

/// A text whose values would take more memory than there is for them.
#[derive(Debug, thiserror::Error)]
#[error("its values would take more than {} MiB; send large tensors as bytes, not as JSON", MAX_MEMORY >> 20)]
pub(crate) struct TreeBudgetExceeded;

impl TreeBudget {
    /// Whether there were too few bytes.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.left.get().is_none()
    }

    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(bytes)));
        if self.is_exceeded() { Err(E::custom(TreeBudgetExceeded)) } else { Ok(()) }
    }

    /// Enters a list or an object; [`Self::leave`] follows at its end.
    fn enter<E: Error>(&self) -> Result<(), E> {
        self.levels.set(self.levels.get().and_then(|levels| levels.checked_sub(1)));
        if self.levels.get().is_none() { Err(E::custom("it is nested too deeply")) } else { Ok(()) }
    }

    fn leave(&self) {
        self.levels.set(self.levels.get().map(|levels| levels + 1));
    }
}

/// Reads a tree, as long as there is room.
pub(crate) struct TreeSeed<'a>(pub(crate) &'a TreeBudget);

impl TreeSeed<'_> {
    fn leaf<E: Error>(&self, value: impl Into<Json>) -> Result<Json, E> {
        self.0.take(VALUE)?;
        Ok(value.into())
    }
}

impl<'de> DeserializeSeed<'de> for TreeSeed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeSeed<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Json, E> {
        self.leaf(value)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        self.leaf(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        self.0.take(VALUE)?;
        self.0.enter()?;
        let Some(first) = items.next_element_seed(TreeSeed(self.0))? else {
            self.0.leave();
            return Ok(Json::Array(Vec::new()));
        };
        self.0.take(LIST)?;
        // A list allocates four elements at the first push, three of them unused in lists of one.
        let mut list = vec![first];
        while let Some(item) = items.next_element_seed(TreeSeed(self.0))? {
            list.push(item);
        }
        self.0.leave();
        Ok(Json::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        self.0.take(VALUE)?;
        self.0.enter()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            self.0.take(if object.is_empty() { OBJECT + NAME } else { NAME })?;
            // Readers differ in which of two they take.
            match object.entry(name) {
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format_args!("duplicate field `{}`", entry.key())));
                }
                Entry::Vacant(entry) => entry.insert(fields.next_value_seed(TreeSeed(self.0))?),
            };
        }
        self.0.leave();
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            ".{0,6}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::vec((".{0,4}", inner), 0..5)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn parses_like_serde_json(json in json()) {
            let text = json.to_string();
            prop_assert_eq!(serde_json::from_str::<BoundedJsonTree>(&text).unwrap().0, serde_json::from_str::<Json>(&text).unwrap());
        }
    }

    #[test]
    fn rejects_trees_over_the_memory_budget() {
        let most = MAX_MEMORY / VALUE;
        let list = |values: usize| format!("[{}[]]", "[],".repeat(values - 1));
        assert!(serde_json::from_str::<BoundedJsonTree>(&list(most - 2)).is_ok());
        let refused = |text: &str| serde_json::from_str::<BoundedJsonTree>(text).unwrap_err().to_string();
        assert!(refused(&list(most)).contains("more than 64 MiB"), "{}", refused(&list(most)));
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        for (value, at_most) in [
            ("1", most),
            ("[1]", MAX_MEMORY / (2 * VALUE + LIST)),
            (&deep, MAX_MEMORY / (100 * VALUE + 99 * LIST)),
            ("{\"a\":1}", MAX_MEMORY / (2 * VALUE + OBJECT + NAME)),
        ] {
            let text = format!("[{}{value}]", format!("{value},").repeat(at_most));
            assert!(refused(&text).contains("send large tensors as bytes"), "{value}");
        }
        assert!(!refused(&"[".repeat(200)).contains("MiB"), "this is wrong otherwise");
        let names: Vec<_> = (0..MAX_MEMORY / NAME).map(|number| format!("\"{number}\":1")).collect();
        assert!(refused(&format!("{{{}}}", names.join(","))).contains("MiB"), "names count");
    }

    #[test]
    fn bounds_depth_and_memory_while_parsing() {
        let parse = |text: &str, depth, memory| BoundedJsonTree::parse(text, depth, memory).map(|(tree, _)| tree);
        let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&deep(8), 8, 1 << 20).is_ok());
        assert_eq!(parse(&deep(9), 8, 1 << 20), Err(JsonTreeError::TooDeep(8)));
        assert_eq!(parse(&deep(1_000_000), 120, usize::MAX), Err(JsonTreeError::TooDeep(120)));
        assert!(parse(r#"["[[[[\"[[[["]"#, 1, 1 << 20).is_ok(), "brackets in a string do not nest");
        assert!(parse("[[1],{\"a\":[2]},[3]]", 3, 1 << 20).is_ok(), "levels are counted, not lists");
        let wide = format!("[{}0]", "0,".repeat(1000));
        assert_eq!(parse(&wide, 8, 1000 * VALUE), Err(JsonTreeError::TooLarge));
        let (_, memory) = BoundedJsonTree::parse(&wide, 8, 1 << 20).unwrap();
        assert_eq!(memory, 1002 * VALUE + LIST + wide.len());
        assert!(matches!(parse("[1] 2", 8, 1 << 20), Err(JsonTreeError::Invalid(_))));
    }

    #[test]
    fn rejects_duplicate_fields() {
        for text in [r#"{"a":1,"a":2}"#, r#"[{"b":{"a":1,"\u0061":1}}]"#, r#"{"":0,"":0}"#] {
            let error = serde_json::from_str::<BoundedJsonTree>(text).unwrap_err().to_string();
            assert!(error.contains("duplicate field"), "{text}: {error}");
        }
        assert!(serde_json::from_str::<BoundedJsonTree>(r#"{"a":{"a":1},"A":1}"#).is_ok());
    }

    #[test]
    fn trees_of_one_text_share_the_budget() {
        let budget = TreeBudget::default();
        let text = format!("[{}1]", "1,".repeat(MAX_MEMORY / VALUE / 2));
        let read = || TreeSeed(&budget).deserialize(&mut serde_json::Deserializer::from_str(&text));
        assert!(read().is_ok() && !budget.is_exceeded());
        assert!(read().is_err() && budget.is_exceeded());
    }
}
