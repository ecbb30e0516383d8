//! The native steps: one file a step, in a folder for each group, each with the
//! reference library it follows.
//!
//! Every step documents its options in a struct whose JSON Schema is what users see, states its
//! signature for those options, and is tested against numbers that the reference library computed
//! (`tests/reference/builtin/`).

mod audio;
mod image;
mod output;
mod ports;
mod tensor;
mod text;
mod wide;

use crate::pipeline::Builtin;

/// Every built-in step, group by group, in the order in which a pipeline usually uses them.
pub fn all() -> Vec<Builtin> {
    [image::all(), text::all(), audio::all(), tensor::all(), output::all()].concat()
}

#[cfg(test)]
mod reference;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::all;
    use crate::pipeline::Site;

    #[test]
    fn every_option_is_described_and_unknown_ones_are_refused() {
        for builtin in all() {
            let schema = serde_json::to_value((builtin.schema)()).unwrap();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                assert!(
                    property["description"].as_str().is_some_and(|text| text.len() > 10),
                    "{}.{name}",
                    builtin.name
                );
            }
            assert_eq!(schema["additionalProperties"], false, "{}", builtin.name);
            let error = (builtin.build)(serde_json::json!({"no such option": 1}), &Site::Component).err().unwrap();
            assert!(error.message.contains("no such option"), "{}: {error}", builtin.name);
        }
    }
}
