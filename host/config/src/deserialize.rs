//! Reading a [`Node`] into a typed value through serde, keeping the places that [`Spanned`] asks for.

use std::fmt;
use std::marker::PhantomData;
use std::slice;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Serialize, Serializer, forward_to_deserialize_any};

use super::node::{Content, Node, Spanned};
use std::sync::Arc;

/// The name by which [`Spanned`] asks this deserializer for the place.
const SPANNED: &str = "$gpux::Spanned";

/// Reads `T` from a node whose shape has been checked.
pub(super) fn read<'de, T: Deserialize<'de>>(node: &'de Node) -> Result<T, Error> {
    T::deserialize(NodeDeserializer(node))
}

struct NodeDeserializer<'de>(&'de Node);

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.content {
            Content::Null => visitor.visit_unit(),
            Content::Bool(value) => visitor.visit_bool(*value),
            Content::Number(number) => match (number.value.as_u64(), number.value.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(number.value.as_f64().unwrap_or_default()),
            },
            Content::String(text) => visitor.visit_borrowed_str(text),
            Content::Sequence(items) => visitor.visit_seq(ItemAccess(items.iter())),
            Content::Mapping(entries) => visitor.visit_map(EntryAccess { entries: entries.iter(), value: None }),
        }
    }

    /// A number is read as its source text, so that `version: 1.0` stays `1.0`; where
    /// only text is valid, the schema has rejected it.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.content {
            Content::Number(number) => visitor.visit_borrowed_str(&number.text),
            Content::Bool(value) => visitor.visit_borrowed_str(if *value { "true" } else { "false" }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == SPANNED {
            visitor.visit_seq(SpannedAccess { node: self.0, next: 0 })
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let name = self.0.as_str().ok_or_else(|| de::Error::custom("a name is needed here"))?;
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct ItemAccess<'de>(slice::Iter<'de, Node>);

impl<'de> de::SeqAccess<'de> for ItemAccess<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|node| seed.deserialize(NodeDeserializer(node))).transpose()
    }
}

struct EntryAccess<'de> {
    entries: slice::Iter<'de, (Spanned<Arc<str>>, Node)>,
    value: Option<&'de Node>,
}

impl<'de> de::MapAccess<'de> for EntryAccess<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, node)) = self.entries.next() else { return Ok(None) };
        self.value = Some(node);
        let key: StrDeserializer<'_, Error> = (*key.value).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let node = self.value.take().ok_or_else(|| de::Error::custom("a value was asked for before its key"))?;
        seed.deserialize(NodeDeserializer(node))
    }
}

/// `(start, end, value)`: how a [`Spanned`] travels.
struct SpannedAccess<'de> {
    node: &'de Node,
    next: u8,
}

impl<'de> de::SeqAccess<'de> for SpannedAccess<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.next += 1;
        let value = match self.next {
            1 => seed.deserialize(self.node.span.start.into_deserializer()),
            2 => seed.deserialize(self.node.span.end.into_deserializer()),
            _ => seed.deserialize(NodeDeserializer(self.node)),
        };
        value.map(Some)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpannedVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut place: A) -> Result<Self::Value, A::Error> {
                let missing = || de::Error::custom("a place is incomplete");
                let start = place.next_element()?.ok_or_else(missing)?;
                let end = place.next_element()?.ok_or_else(missing)?;
                let value = place.next_element()?.ok_or_else(missing)?;
                Ok(Spanned::new(value, start..end))
            }

            /// Another format: there is no place.
            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                Ok(Spanned::new(T::deserialize(deserializer)?, 0..0))
            }
        }

        deserializer.deserialize_newtype_struct(SPANNED, SpannedVisitor(PhantomData))
    }
}

impl<T: Serialize> Serialize for Spanned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
