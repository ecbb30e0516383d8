use std::borrow::Cow;

use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::Reader;
use super::error::Fault;

/// The items of an array.
pub(super) struct Items<'a, 'de> {
    reader: &'a mut Reader<'de>,
    next: usize,
}

impl<'a, 'de> Items<'a, 'de> {
    pub(super) fn new(reader: &'a mut Reader<'de>) -> Self {
        Self { reader, next: 0 }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.reader.text.peek()? == b']' {
            return Ok(None);
        }
        if self.next > 0 {
            self.reader.text.expect(b',')?;
        }
        let item = self.reader.read(seed).map_err(|fault| fault.in_item(self.next))?;
        self.next += 1;
        Ok(Some(item))
    }
}

/// The entries of an object.
pub(super) struct Entries<'a, 'de> {
    reader: &'a mut Reader<'de>,
    key: Option<Cow<'de, str>>,
}

impl<'a, 'de> Entries<'a, 'de> {
    pub(super) fn new(reader: &'a mut Reader<'de>) -> Self {
        Self { reader, key: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.reader.text.peek()? == b'}' {
            return Ok(None);
        }
        if self.key.is_some() {
            self.reader.text.expect(b',')?;
        }
        let key = self.key.insert(self.reader.key()?);
        seed.deserialize(CowStrDeserializer::new(key.clone())).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let value = self.reader.read(seed);
        value.map_err(|fault| fault.under_key(self.key.as_deref().unwrap_or_default()))
    }
}

/// A name among several, alone or as the only key of an object.
pub(super) struct Variant<'a, 'de> {
    pub(super) reader: &'a mut Reader<'de>,
    pub(super) has_content: bool,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        let name = if self.has_content { self.reader.key()? } else { self.reader.text.string()? };
        Ok((seed.deserialize(CowStrDeserializer::new(name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        if self.has_content { self.reader.skip() } else { Ok(()) }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        self.content()?.read(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.content()?.deserialize_any(visitor)
    }
}

impl<'a, 'de> Variant<'a, 'de> {
    fn content(self) -> Result<&'a mut Reader<'de>, Fault> {
        if self.has_content { Ok(self.reader) } else { Err(Fault::custom("a name that needs an object around it")) }
    }
}
