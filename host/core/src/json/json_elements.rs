//! Numbers of JSON straight into the elements of a tensor, without a tree between.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::json_conversion::JsonError;
use super::json_element::{JsonElement, with_json_element};
use crate::values::element::ElementType;
use crate::values::tensor::Tensor;

/// The most elements for which memory is allocated before they are read: the text may be shorter than the shape.
const MAX_ROOM: usize = 1 << 20;

/// The strings of one request: an empty one is 3 bytes of JSON, or 4 of raw bytes, and 24 in memory.
pub const MAX_STRINGS: usize = 4 << 20;

/// Reads nested lists (or one element) as a tensor of this type. The lists' nesting is its shape.
/// Numbers are held to the type's range, 64-bit integers are exact.
#[derive(Clone, Copy, Debug)]
pub struct TensorSeed {
    /// the element type
    pub element: ElementType,
    /// how many elements will probably come
    pub room: usize,
}

impl<'de> DeserializeSeed<'de> for TensorSeed {
    type Value = Tensor;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Tensor, D::Error> {
        with_json_element!(self.element, T => read::<T, D>(json, self.room))
    }
}

fn read<'de, T: JsonElement, D: Deserializer<'de>>(json: D, room: usize) -> Result<Tensor, D::Error> {
    let data = Vec::<T>::with_capacity(room.min(MAX_ROOM));
    let mut found = ElementsFound { shape: Vec::new(), data, rank: None };
    Nested { depth: 0, found: &mut found }.deserialize(json)?;
    // The text may be shorter than the shape: many such tensors would hold memory for nothing.
    if found.data.capacity() / 2 > found.data.len() {
        found.data.shrink_to_fit();
    }
    Tensor::new(found.shape, found.data).map_err(D::Error::custom)
}

struct ElementsFound<T> {
    shape: Vec<usize>,
    data: Vec<T>,
    /// how deep the elements lie, once there is one
    rank: Option<usize>,
}

/// A list, or an element, at this nesting level.
struct Nested<'a, T> {
    depth: usize,
    found: &'a mut ElementsFound<T>,
}

impl<T: JsonElement> Nested<'_, T> {
    fn leaf<E: Error>(self, element: Option<T>, shown: impl FnOnce() -> String) -> Result<(), E> {
        if self.depth < self.found.shape.len() {
            return Err(E::custom(format_args!("takes a list, but this is {}", shown())));
        }
        let element = element.ok_or_else(|| E::custom(format_args!("{} is not a {}", shown(), T::TYPE)))?;
        if T::TYPE == ElementType::String && self.found.data.len() == MAX_STRINGS {
            return Err(E::custom(format_args!("more than {MAX_STRINGS} strings")));
        }
        self.found.rank = Some(self.depth);
        self.found.data.push(element);
        Ok(())
    }
}

impl<'de, T: JsonElement> DeserializeSeed<'de> for Nested<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, T: JsonElement> Visitor<'de> for Nested<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lists of {}", T::TYPE)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.leaf(T::from_integer(number.into()), || number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.leaf(T::from_integer(number.into()), || number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.leaf(T::from_float(number), || number.to_string())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.leaf(T::from_bool(value), || value.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.leaf(T::from_text(text), || format!("the string {:?}", text.chars().take(40).collect::<String>()))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.leaf(T::from_null(), || "null".to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { depth, found } = self;
        // Only the first way down may add axes: once there is an element, the depth is known.
        let first = found.shape.len() == depth;
        if first {
            if found.rank.is_some() {
                return Err(A::Error::custom(format_args!("takes a {}, but this is a list", T::TYPE)));
            }
            found.shape.push(0);
        }
        let mut size = 0;
        while items.next_element_seed(Nested { depth: depth + 1, found: &mut *found })?.is_some() {
            size += 1;
        }
        if first {
            found.shape[depth] = size;
        } else if found.shape[depth] != size {
            return Err(A::Error::custom(JsonError::Ragged(found.shape[depth], size)));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::{Kind, TensorKind, from_json};

    fn read(element: ElementType, text: &str) -> Result<Tensor, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        TensorSeed { element, room: 4 }.deserialize(&mut json).map_err(|error| error.to_string())
    }

    /// The result through a tree of the same text.
    fn through_tree(element: ElementType, text: &str) -> Result<Tensor, ()> {
        let json: Json = serde_json::from_str(text).map_err(drop)?;
        let value = from_json(json, &Kind::Tensor(TensorKind::of_elements(element))).map_err(drop)?;
        value.as_tensor().cloned().ok_or(())
    }

    #[test]
    fn accepts_extremes_and_rejects_values_out_of_range() {
        for (element, least, most, beyond) in [
            (ElementType::Int8, "-128", "127", "128"),
            (ElementType::Uint8, "0", "255", "-1"),
            (ElementType::Int16, "-32768", "32767", "32768"),
            (ElementType::Uint16, "0", "65535", "65536"),
            (ElementType::Int32, "-2147483648", "2147483647", "2147483648"),
            (ElementType::Uint32, "0", "4294967295", "4294967296"),
            (ElementType::Int64, "-9223372036854775808", "9223372036854775807", "9223372036854775808"),
            (ElementType::Uint64, "0", "18446744073709551615", "18446744073709551616"),
        ] {
            let text = format!("[{least},{most}]");
            let tensor = read(element, &text).unwrap();
            let mut written = Vec::new();
            crate::write_json(&tensor.into(), &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), text);
            assert!(read(element, &format!("[{beyond}]")).is_err(), "{element}");
            assert!(read(element, "[0.5]").is_err() && read(element, "[true]").is_err(), "{element}");
        }
        let float64 = read(ElementType::Float64, "[1.7976931348623157e308, 5e-324, 0.1]").unwrap();
        assert_eq!(float64.as_slice::<f64>().unwrap(), [f64::MAX, 5e-324, 0.1]);
        assert!(read(ElementType::Float32, "[1e39]").unwrap_err().contains("not a float32"));
    }

    #[test]
    fn rejects_ragged_lists() {
        assert_eq!(read(ElementType::Uint8, "[[[1,2]],[[3,4]]]").unwrap().shape(), [2, 1, 2]);
        assert_eq!(read(ElementType::Uint8, "7").unwrap().shape(), [0_usize; 0]);
        assert_eq!(read(ElementType::Uint8, "[[],[]]").unwrap().shape(), [2, 0]);
        for uneven in ["[[1,2],[3]]", "[[1],2]", "[1,[2]]", "[[],[1]]", "[[],3]", "[null]", "[{}]"] {
            assert!(read(ElementType::Uint8, uneven).is_err(), "{uneven}");
        }
        assert!(read(ElementType::Uint8, &"[".repeat(100_000)).is_err());
    }

    #[test]
    fn counts_strings_but_not_numbers() {
        let list = |item: &str, many: usize| format!("[{}{item}]", format!("{item},").repeat(many - 1));
        assert_eq!(read(ElementType::String, &list("\"\"", MAX_STRINGS)).unwrap().len(), MAX_STRINGS);
        let refused = read(ElementType::String, &list("\"\"", MAX_STRINGS + 1)).unwrap_err();
        assert!(refused.contains("more than 4194304 strings"), "{refused}");
        assert!(read(ElementType::Bool, &list("true", MAX_STRINGS + 1)).is_ok());
    }

    fn trees() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            (-300_i64..300).prop_map(Json::from),
            any::<f32>().prop_map(Json::from),
            any::<bool>().prop_map(Json::from),
            prop_oneof![Just("NaN"), Just("Infinity"), Just("text")].prop_map(Json::from),
            Just(Json::Null),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(|items| json!(items)))
    }

    proptest! {
        #[test]
        fn reads_the_same_values_as_the_tree_parser(json in trees()) {
            let text = json.to_string();
            for element in ElementType::ALL {
                let (direct, tree) = (read(element, &text).ok(), through_tree(element, &text).ok());
                // NaN is not equal to itself.
                prop_assert_eq!(format!("{direct:?}"), format!("{tree:?}"), "{} as {}", text, element);
            }
        }
    }
}
