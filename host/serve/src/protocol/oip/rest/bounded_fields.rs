//! Limits the number of parts in a JSON request: each takes a few bytes of text, and many more in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json};

use crate::protocol::oip::parameters::{MAX_NAME, MAX_PARTS, MAX_TEXT, Parameters, too_long};
use gpux_core::{MAX_AXES, MAX_STRINGS};

fn too_many<E: Error>(what: &str) -> E {
    E::custom(format_args!("more than {MAX_PARTS} {what}"))
}

/// A part that may have parameters of its own.
pub(super) trait Parameterized {
    fn parameters(&self) -> usize;

    /// The number of strings in its data.
    fn strings(&self) -> usize {
        0
    }
}

/// A list of tensors or outputs, with limits for the sum of their parameters and the sum of their strings.
pub(super) struct BoundedList<T>(pub(super) Vec<T>);

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Parameterized> BoundedList<T> {
    pub(super) fn parameters(&self) -> usize {
        self.0.iter().map(T::parameters).sum()
    }
}

impl<'de, T: Deserialize<'de> + Parameterized> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

struct BoundedListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Parameterized> Visitor<'de> for BoundedListVisitor<T> {
    type Value = BoundedList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<BoundedList<T>, A::Error> {
        let mut list = Vec::new();
        let (mut parameters, mut strings) = (0, 0);
        while let Some(item) = items.next_element::<T>()? {
            if list.len() == MAX_PARTS {
                return Err(too_many("inputs or outputs"));
            }
            parameters += item.parameters();
            if parameters > MAX_PARTS {
                return Err(too_many("parameters"));
            }
            strings += item.strings();
            if strings > MAX_STRINGS {
                return Err(A::Error::custom(format_args!("more than {MAX_STRINGS} strings")));
            }
            list.push(item);
        }
        Ok(BoundedList(list))
    }
}

/// A name, an id or a datatype, of limited length.
#[derive(Debug, Default)]
pub(super) struct BoundedName(pub(super) String);

impl<'de> Deserialize<'de> for BoundedName {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = BoundedName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<BoundedName, E> {
        bounded(text, MAX_NAME).map(|name| BoundedName(name.to_owned()))
    }
}

fn bounded<E: Error>(text: &str, most: usize) -> Result<&str, E> {
    if text.len() > most { Err(E::custom(too_long(most))) } else { Ok(text) }
}

/// A tensor's shape, with a limited number of axes.
#[derive(Debug)]
pub(super) struct BoundedShape(pub(super) Vec<usize>);

impl<'de> Deserialize<'de> for BoundedShape {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(ShapeVisitor).map(Self)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Vec<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shape: a list of sizes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sizes: A) -> Result<Vec<usize>, A::Error> {
        let mut shape = Vec::new();
        while let Some(size) = sizes.next_element()? {
            if shape.len() == MAX_AXES {
                return Err(A::Error::custom(format_args!("a tensor has at most {MAX_AXES} axes")));
            }
            shape.push(size);
        }
        Ok(shape)
    }
}

/// An object of parameters. No known parameter is a list or an object; such values are kept as empty ones.
#[derive(Debug, Default)]
pub(super) struct ParsedParameters(pub(super) Parameters);

impl<'de> Deserialize<'de> for ParsedParameters {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(ParametersVisitor).map(Self)
    }
}

struct ParametersVisitor;

impl<'de> Visitor<'de> for ParametersVisitor {
    type Value = Parameters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Parameters, A::Error> {
        let mut parameters = Parameters::new();
        while let Some(BoundedName(name)) = fields.next_key()? {
            if parameters.len() == MAX_PARTS {
                return Err(too_many("parameters"));
            }
            parameters.insert(name, fields.next_value_seed(LeafSeed)?);
        }
        Ok(parameters)
    }
}

/// Parses a value; lists and objects become empty.
struct LeafSeed;

impl<'de> DeserializeSeed<'de> for LeafSeed {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LeafSeed {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a parameter")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        bounded(value, MAX_TEXT).map(Json::from)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Json::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Json::Object(Map::new()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn skips_nested_parameters() {
        let text = r#"{"a": -1, "b": 2, "c": 0.5, "d": "x\n", "e": true, "f": null, "g": [1, [2]], "h": {"i": {}}}"#;
        let ParsedParameters(read) = serde_json::from_str(text).unwrap();
        let flat = json!({"a": -1, "b": 2, "c": 0.5, "d": "x\n", "e": true, "f": null, "g": [], "h": {}});
        assert_eq!(Json::Object(read), flat);
        for wrong in ["[]", "1", "{\"a\": [1}", "{\"a\": }"] {
            assert!(serde_json::from_str::<ParsedParameters>(wrong).is_err(), "{wrong}");
        }
    }

    /// Deserializes from its number of parameters.
    #[derive(serde::Deserialize)]
    struct ParameterCount(usize);

    impl Parameterized for ParameterCount {
        fn parameters(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn bounds_parameters_of_a_list() {
        let list = |parameters: [usize; 3]| {
            serde_json::from_str::<BoundedList<ParameterCount>>(&json!(parameters).to_string())
        };
        assert_eq!(list([MAX_PARTS - 1, 0, 1]).unwrap().parameters(), MAX_PARTS);
        assert!(list([MAX_PARTS - 1, 1, 1]).err().unwrap().to_string().contains("more than 4096 parameters"));
    }

    /// Deserializes from its number of strings.
    #[derive(serde::Deserialize)]
    struct StringCount(usize);

    impl Parameterized for StringCount {
        fn parameters(&self) -> usize {
            0
        }

        fn strings(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn bounds_strings_of_a_list() {
        let list = |strings: [usize; 2]| serde_json::from_str::<BoundedList<StringCount>>(&json!(strings).to_string());
        assert!(list([MAX_STRINGS - 1, 1]).is_ok());
        assert!(list([MAX_STRINGS, 1]).err().unwrap().to_string().contains("more than 4194304 strings"));
    }

    #[test]
    fn bounds_names_and_texts() {
        let name = |length: usize| serde_json::from_str::<BoundedName>(&json!("n".repeat(length)).to_string());
        assert_eq!(name(MAX_NAME).unwrap().0.len(), MAX_NAME);
        assert!(name(MAX_NAME + 1).unwrap_err().to_string().contains("at most 4096 bytes"));
        let given = |name: usize, text: usize| {
            let json = json!({ "n".repeat(name): "t".repeat(text) });
            serde_json::from_str::<ParsedParameters>(&json.to_string())
        };
        assert_eq!(given(MAX_NAME, MAX_TEXT).unwrap().0.len(), 1);
        assert!(given(MAX_NAME + 1, 0).unwrap_err().to_string().contains("at most 4096 bytes"));
        assert!(given(1, MAX_TEXT + 1).unwrap_err().to_string().contains("at most 65536 bytes"));
    }

    #[test]
    fn bounds_the_number_of_axes() {
        let shape = |axes: usize| serde_json::from_str::<BoundedShape>(&json!(vec![1; axes]).to_string());
        assert_eq!(shape(MAX_AXES).unwrap().0, [1; MAX_AXES]);
        assert!(shape(MAX_AXES + 1).unwrap_err().to_string().contains("at most 64 axes"));
    }

    #[test]
    fn bounds_the_number_of_parts() {
        let list =
            |items: usize| serde_json::from_str::<BoundedList<ParameterCount>>(&json!(vec![0; items]).to_string());
        assert_eq!(list(MAX_PARTS).map(|list| list.0.len()).unwrap(), MAX_PARTS);
        assert!(list(MAX_PARTS + 1).err().unwrap().to_string().contains("more than 4096 inputs or outputs"));
        let object = |names: usize| {
            let names: Map<_, _> = (0..names).map(|name| (name.to_string(), Json::Null)).collect();
            serde_json::from_str::<ParsedParameters>(&Json::Object(names).to_string())
        };
        assert_eq!(object(MAX_PARTS).unwrap().0.len(), MAX_PARTS);
        assert!(object(MAX_PARTS + 1).unwrap_err().to_string().contains("more than 4096 parameters"));
    }
}
