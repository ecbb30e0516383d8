//! The name of an element type as an option.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use gpux_core::ElementType;

/// An element type, written as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementName(pub(super) ElementType);

impl Serialize for ElementName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for ElementName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        name.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ElementName {
    fn schema_name() -> Cow<'static, str> {
        "ElementType".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ElementType::ALL.map(ElementType::name) })
    }
}
