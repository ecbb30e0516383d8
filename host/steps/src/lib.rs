//! The native steps: one file a step, in a folder for each group, each with the
//! reference library it follows.
//!
//! Every step documents its options in a struct whose JSON Schema is what users see, states its
//! signature for those options, and is tested against numbers that the reference library computed
//! (`tests/reference/builtin/`).

#![forbid(unsafe_code)]

mod along_axis;
mod arithmetic;
#[cfg(feature = "audio")]
mod audio;
#[cfg(not(feature = "audio"))]
#[path = "no_audio.rs"]
mod audio;
mod deadline;
mod homography;
mod image;
mod metadata_source;
mod operation;
mod output;
mod pairwise_sum;
mod ports;
mod simd;
mod tensor;
mod text;
mod unary;

pub use arithmetic::arithmetic_version;
pub use image::preview;
pub use text::tokenizer_file::cached_tokenizers;

use gpux_core::Builtin;

/// Every built-in step, group by group, in the order in which a pipeline usually uses them.
pub fn all() -> Vec<Builtin> {
    [image::all(), text::all(), audio::all(), tensor::all(), output::all()].concat()
}

#[cfg(test)]
mod reference;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::{all, reference};
    use gpux_core::{Context, Layout, Metadata, OptionOrigin, StepFailure, Tensor, Value};

    #[test]
    fn describes_options_and_rejects_unknown_ones() {
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
            let error =
                (builtin.build)(serde_json::json!({"no such option": 1}), &OptionOrigin::Component).err().unwrap();
            assert!(error.message.contains("no such option"), "{}: {error}", builtin.name);
        }
    }

    #[test]
    fn long_steps_stop_at_the_deadline() {
        let pixels = || {
            let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
            Value::from(Tensor::new([40, 50, 3], vec![7_u8; 6000]).unwrap().with_metadata(metadata))
        };
        let numbers = || Value::from(Tensor::new([2, 3], vec![1_f32; 6]).unwrap());
        let tokens = || Value::from(Tensor::new([1, 2, 3], vec![1_f32; 6]).unwrap());
        let whole = || Value::from(Tensor::new([2, 3], vec![1_i64; 6]).unwrap());
        let long = "A fox ".repeat(10_000);
        let file = json!("tokenize/wordpiece.json");
        for (name, options, inputs) in [
            ("decode-image", json!({}), vec![reference::read("decode/photo.jpg").into()]),
            ("resize", json!({"size": 20}), vec![pixels()]),
            ("letterbox", json!({"size": 20}), vec![pixels()]),
            ("center-crop", json!({"size": 20}), vec![pixels()]),
            ("crop", json!({"height": 20, "width": 20}), vec![pixels()]),
            ("pad", json!({"padding": 20}), vec![pixels()]),
            ("flip", json!({"direction": "vertical"}), vec![pixels()]),
            ("rotate", json!({"degrees": 20}), vec![pixels()]),
            ("warp", json!({"size": 20}), vec![pixels(), json!([[1, 2], [30, 4], [32, 30], [3, 28]]).into()]),
            ("encode-image", json!({"format": "webp"}), vec![pixels()]),
            ("find-boxes", json!({}), vec![numbers()]),
            ("mask", json!({}), vec![numbers()]),
            ("color", json!({"to": "gray"}), vec![pixels()]),
            ("draw-boxes", json!({}), vec![pixels(), json!([{"box": [1, 2, 3, 4]}]).into()]),
            ("cast", json!({"to": "int8"}), vec![numbers()]),
            ("transpose", json!({}), vec![numbers()]),
            ("clip", json!({"min": 0}), vec![numbers()]),
            ("scale", json!({"factor": 2}), vec![numbers()]),
            ("log", json!({}), vec![numbers()]),
            ("standardize", json!({}), vec![numbers()]),
            ("max", json!({}), vec![numbers()]),
            ("mean", json!({}), vec![numbers()]),
            ("sum", json!({}), vec![numbers()]),
            ("slice", json!({"index": "1:"}), vec![numbers()]),
            ("split", json!({"parts": 2}), vec![numbers()]),
            ("concat", json!({}), vec![numbers(), numbers()]),
            ("stack", json!({}), vec![numbers(), numbers()]),
            ("expand", json!({"axes": 0}), vec![numbers()]),
            ("pad-tensor", json!({"pads": [[1, 1], [0, 0]]}), vec![numbers()]),
            ("one-hot", json!({"classes": 3}), vec![whole()]),
            ("sigmoid", json!({}), vec![numbers()]),
            ("softmax", json!({}), vec![numbers()]),
            ("l2-normalize", json!({}), vec![numbers()]),
            ("argmax", json!({}), vec![numbers()]),
            ("normalize", json!({"scale": 2}), vec![pixels()]),
            ("normalize", json!({"method": "min-max"}), vec![pixels()]),
            ("to-tensor", json!({}), vec![pixels()]),
            ("top-k", json!({}), vec![numbers()]),
            ("threshold", json!({}), vec![numbers()]),
            ("cosine", json!({"vectors": [[1, 0, 0]]}), vec![numbers()]),
            ("mean-pool", json!({}), vec![tokens()]),
            ("cls-pool", json!({}), vec![tokens()]),
            ("pool", json!({"mode": ["max", "weightedmean"]}), vec![tokens()]),
            ("join", json!({}), vec![numbers()]),
            ("mfcc", json!({"n_mfcc": 2}), vec![numbers()]),
            ("frame", json!({"frame_length": 2, "hop_length": 1}), vec![numbers()]),
            ("fbank", json!({"sample_rate": 16_000, "frame_shift": 0.2, "snip_edges": false}), vec![numbers()]),
            ("ctc-greedy-decode", json!({"vocabulary": ["-", "a", "b"]}), vec![numbers()]),
            ("detokenize", json!({"tokenizer": file}), vec![whole()]),
            ("normalize-text", json!({"case": "lower"}), vec![long.as_str().into()]),
            ("tokenize", json!({"tokenizer": file}), vec![long.as_str().into()]),
            ("chunk", json!({"tokenizer": file, "max_length": 20}), vec![long.as_str().into()]),
        ] {
            let step = reference::step(name, options);
            let run = |deadline| {
                let inputs = inputs.iter().cloned().map(Some).collect();
                step.run(inputs, &mut Context { deadline, ..Context::default() })
            };
            assert!(run(None).is_ok(), "{name}");
            assert_eq!(run(Some(Instant::now())), Err(StepFailure::Timeout), "{name}");
        }
    }
}
