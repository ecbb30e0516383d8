//! Reads JSON into any type that serde can make, and says where it does not fit.
//!
//! serde_json would add 60 kB to every component, most of it to show numbers in error messages.

mod access;
mod error;
mod text;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer as _, Error as _, Visitor};

use self::access::{Entries, Items, Variant};
use self::error::Fault;
use self::text::Text;

/// Arrays and objects within each other.
const DEPTH: usize = 128;

/// The value that `json` holds; or where it does not fit and why, for people.
pub(crate) fn read<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, String> {
    let mut reader = Reader { text: Text::new(json), depth: 0 };
    let read = T::deserialize(&mut reader).and_then(|value| reader.text.end().map(|()| value));
    read.map_err(|fault| fault.to_string())
}

struct Reader<'de> {
    text: Text<'de>,
    depth: usize,
}

impl<'de> Reader<'de> {
    /// Reads what is inside of an array or object with `inside`.
    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == DEPTH {
            return Err(Fault::custom("too many arrays and objects within each other"));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    fn value<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fault> {
        match self.text.peek()? {
            b'n' => self.text.word("null").and_then(|()| visitor.visit_unit()),
            b't' => self.text.word("true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.text.word("false").and_then(|()| visitor.visit_bool(false)),
            b'"' => match self.text.string()? {
                std::borrow::Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                std::borrow::Cow::Owned(text) => visitor.visit_string(text),
            },
            b'[' => self.nested(|reader| {
                reader.text.expect(b'[')?;
                let value = visitor.visit_seq(Items::new(reader))?;
                reader.text.expect(b']').map(|()| value)
            }),
            b'{' => self.nested(|reader| {
                reader.text.expect(b'{')?;
                let value = visitor.visit_map(Entries::new(reader))?;
                reader.text.expect(b'}').map(|()| value)
            }),
            _ => number(self.text.number()?, visitor),
        }
    }
}

/// A number as the narrowest of what JSON's numbers can be.
fn number<'de, V: Visitor<'de>>(number: &str, visitor: V) -> Result<V::Value, Fault> {
    if let Ok(number) = number.parse() {
        return visitor.visit_u64(number);
    }
    if let Ok(number) = number.parse() {
        return visitor.visit_i64(number);
    }
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => visitor.visit_f64(number),
        _ => Err(Fault::custom("a number that is too large")),
    }
}

impl<'de> serde::Deserializer<'de> for &mut Reader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.value(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.text.peek()? == b'n' {
            self.text.word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// A name, or an object of one name with what belongs to it.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.text.peek()? {
            b'"' => visitor.visit_enum(Variant { reader: self, has_content: false }),
            b'{' => self.nested(|reader| {
                reader.text.expect(b'{')?;
                let value = visitor.visit_enum(Variant { reader, has_content: true })?;
                reader.text.expect(b'}').map(|()| value)
            }),
            _ => Err(Fault::custom("not a name, nor an object with one")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> Reader<'de> {
    fn read<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        seed.deserialize(self)
    }

    fn key(&mut self) -> Result<std::borrow::Cow<'de, str>, Fault> {
        self.text.peek()?;
        let key = self.text.string()?;
        self.text.expect(b':')?;
        Ok(key)
    }

    fn skip(&mut self) -> Result<(), Fault> {
        self.deserialize_ignored_any(serde::de::IgnoredAny).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
