//! The protocol's datatypes and gpux's element types.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serializer;

use gpux_core::ElementType;

/// (element type, datatype, name in a model's configuration, number in a model's configuration)
const TABLE: [(ElementType, &str, &str, i32); 14] = [
    (ElementType::Bool, "BOOL", "TYPE_BOOL", 1),
    (ElementType::Uint8, "UINT8", "TYPE_UINT8", 2),
    (ElementType::Uint16, "UINT16", "TYPE_UINT16", 3),
    (ElementType::Uint32, "UINT32", "TYPE_UINT32", 4),
    (ElementType::Uint64, "UINT64", "TYPE_UINT64", 5),
    (ElementType::Int8, "INT8", "TYPE_INT8", 6),
    (ElementType::Int16, "INT16", "TYPE_INT16", 7),
    (ElementType::Int32, "INT32", "TYPE_INT32", 8),
    (ElementType::Int64, "INT64", "TYPE_INT64", 9),
    (ElementType::Float16, "FP16", "TYPE_FP16", 10),
    (ElementType::Float32, "FP32", "TYPE_FP32", 11),
    (ElementType::Float64, "FP64", "TYPE_FP64", 12),
    (ElementType::String, "BYTES", "TYPE_STRING", 13),
    (ElementType::Bfloat16, "BF16", "TYPE_BF16", 14),
];

fn row(element: ElementType) -> (ElementType, &'static str, &'static str, i32) {
    TABLE.into_iter().find(|row| row.0 == element).unwrap_or((element, "", "TYPE_INVALID", 0))
}

/// `FP32`, `BYTES` …
pub(crate) fn name(element: ElementType) -> &'static str {
    row(element).1
}

/// `TYPE_FP32`, `TYPE_STRING` …
pub(super) fn config_name(element: ElementType) -> &'static str {
    row(element).2
}

/// The number of [`config_name`].
#[cfg(feature = "grpc")]
pub(super) fn config_number(element: ElementType) -> i32 {
    row(element).3
}

/// The element type of a datatype; the error lists all datatypes.
pub(super) fn parse(name: &str) -> Result<ElementType, String> {
    TABLE.into_iter().find(|row| row.1 == name).map(|row| row.0).ok_or_else(|| {
        let known = names().join(", ");
        format!("`{}` is not a datatype; these are: {known}", name.chars().take(40).collect::<String>())
    })
}

/// Whether JSON and gRPC's typed contents can hold elements of this type.
pub(crate) const fn is_written_out(element: ElementType) -> bool {
    !matches!(element, ElementType::Float16 | ElementType::Bfloat16)
}

/// Serializes an element type as its datatype.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn write<S: Serializer>(element: &ElementType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name(*element))
}

/// Every datatype.
pub(crate) fn names() -> [&'static str; TABLE.len()] {
    TABLE.map(|row| row.1)
}

/// The schema of a datatype.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": names() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_its_datatype() {
        for element in ElementType::ALL {
            assert_eq!(parse(name(element)), Ok(element));
            assert_ne!(config_number(element), 0);
        }
        assert!(parse("FP8").unwrap_err().contains("BF16"));
    }
}
