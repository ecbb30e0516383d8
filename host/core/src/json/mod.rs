//! Values from JSON and to JSON, within bounds.

pub(crate) mod bounded_json_tree;
pub(crate) mod json_conversion;
pub mod json_decoded_size;
pub(crate) mod json_element;
pub(crate) mod json_elements;
pub(crate) mod json_schema_limits;
pub(crate) mod json_text;
