//! Bounds the decoded size of messages before they are decoded.
//!
//! An empty tensor takes two bytes of a message and some hundred bytes in memory: a body within its limit could use up
//! all memory.
//!
//! tonic limits the encoded size only. Tests: `estimates_memory_before_decoding`, `bounds_repeated_fields`.

use std::collections::HashMap;

use prost::Message as _;
use prost::bytes::Bytes;

use super::fields::Fields;
use crate::ServeError;
use crate::engine::body_budget::RequestBudget;
use crate::protocol::oip::grpc::proto::{InferParameter, ModelInferRequest};
use crate::protocol::oip::parameters::{MAX_NAME, MAX_PARTS, MAX_TEXT, too_long};
use gpux_core::MemoryPermit;
use gpux_core::{MAX_AXES, MAX_STRINGS};

/// The most fields of one message, except in contents: the most parts, each with all its fields.
const MAX_FIELDS: usize = MAX_PARTS * (MAX_AXES + 4);

/// The most bytes of names and texts in one message: they are copied before its execution.
const MAX_TEXTS: usize = 1 << 20;

/// The fields of a request that are needed before its execution: all but its tensors.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Head {
    #[prost(string, tag = "1")]
    pub(super) model_name: String,
    #[prost(string, tag = "2")]
    pub(super) model_version: String,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(super) parameters: HashMap<String, InferParameter>,
}

impl Head {
    /// Decodes only the head of a message, which is fast.
    pub(super) fn read(message: &Bytes) -> Result<Self, ServeError> {
        Count::default().walk(Kind::Head, message)?;
        Self::decode(message.clone()).map_err(broken)
    }
}

/// Decodes a message. Fails if it has more parts than the limits, or if the memory budget cannot hold its decoded
/// contents.
pub(super) fn read(message: Bytes, budget: &RequestBudget) -> Result<(ModelInferRequest, MemoryPermit), ServeError> {
    let permit = budget.reserve(check(&message)?)?;
    ModelInferRequest::decode(message).map_err(broken).map(|request| (request, permit))
}

fn broken(error: prost::DecodeError) -> ServeError {
    ServeError::invalid(format!("not an inference request: {error}"))
}

/// The memory that the decoded contents will take, in bytes. Malformed input is left for prost to reject.
fn check(message: &[u8]) -> Result<usize, ServeError> {
    let mut count = Count::default();
    count.walk(Kind::Request, message)?;
    Ok(count.contents)
}

/// The messages within a request, as in open_inference.proto.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    /// a request without its tensors and outputs
    Head,
    Input,
    Output,
    /// an entry of a map of parameters
    Parameter,
    /// the value of such an entry
    Value,
    Contents,
}

/// Counts of a message with all nested messages.
#[derive(Default)]
struct Count {
    /// tensors, outputs and parameters
    parts: usize,
    /// elements of BYTES tensors
    texts: usize,
    /// fields of all kinds, except in contents: a field may be repeated
    fields: usize,
    /// bytes of names and of texts in parameters
    written: usize,
    /// memory of the decoded contents, in bytes
    contents: usize,
}

impl Count {
    fn walk(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), ServeError> {
        let mut axes = 0;
        for (number, field) in Fields(bytes) {
            match (kind, number) {
                (Kind::Contents, number) => self.contents(number, field)?,
                (Kind::Request | Kind::Head | Kind::Input, 4) | (Kind::Output, 2) => {
                    self.part()?;
                    self.walk(Kind::Parameter, field)?;
                }
                (Kind::Request, 5) => {
                    self.part()?;
                    self.walk(Kind::Input, field)?;
                }
                (Kind::Request, 6) => {
                    self.part()?;
                    self.walk(Kind::Output, field)?;
                }
                (Kind::Head, 5 | 6) => self.part()?,
                (Kind::Request | Kind::Head, 1..=3) | (Kind::Input, 1 | 2) | (Kind::Output | Kind::Parameter, 1) => {
                    self.written(field, MAX_NAME)?;
                }
                (Kind::Value, 3) => self.written(field, MAX_TEXT)?,
                (Kind::Parameter, 2) => self.walk(Kind::Value, field)?,
                (Kind::Input, 3) => {
                    axes += axes_in(field);
                    if axes > MAX_AXES {
                        return Err(refused(format!("a tensor has at most {MAX_AXES} axes")));
                    }
                }
                (Kind::Input, 5) => self.walk(Kind::Contents, field)?,
                // Raw contents, which a tensor copies.
                (Kind::Request, 7) => self.contents += field.len(),
                _ => {}
            }
            self.fields += usize::from(kind != Kind::Contents);
            if self.fields > MAX_FIELDS {
                return Err(refused(format!("a message has at most {MAX_FIELDS} fields")));
            }
        }
        Ok(())
    }

    fn part(&mut self) -> Result<(), ServeError> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(refused(format!("a message has at most {MAX_PARTS} tensors and parameters")));
        }
        Ok(())
    }

    /// Counts a name, or a text of a parameter.
    fn written(&mut self, text: &[u8], most: usize) -> Result<(), ServeError> {
        self.written += text.len();
        if text.len() > most {
            return Err(refused(too_long(most)));
        }
        if self.written > MAX_TEXTS {
            return Err(refused(format!("the names and parameters of a message have at most {MAX_TEXTS} bytes")));
        }
        Ok(())
    }

    /// Counts a field of contents: one number, several packed numbers, or an element of BYTES.
    fn contents(&mut self, number: u64, field: &[u8]) -> Result<(), ServeError> {
        self.contents += match number {
            1 => numbers_in(field),
            2 | 4 => 4 * numbers_in(field),
            3 | 5 => 8 * numbers_in(field),
            6 | 7 => field.len(),
            8 => {
                self.text()?;
                size_of::<Bytes>() + size_of::<String>()
            }
            _ => 0,
        };
        Ok(())
    }

    fn text(&mut self) -> Result<(), ServeError> {
        self.texts += 1;
        if self.texts > MAX_STRINGS {
            return Err(refused(format!("a request has at most {MAX_STRINGS} strings")));
        }
        Ok(())
    }
}

fn refused(why: String) -> ServeError {
    ServeError::invalid(why)
}

/// The number of integers in a field, packed or single.
fn numbers_in(field: &[u8]) -> usize {
    field.iter().filter(|byte| **byte < 0x80).count().max(1)
}

/// The number of integers in a field, packed or single, counted up to one beyond the limit.
fn axes_in(field: &[u8]) -> usize {
    field.iter().filter(|byte| **byte < 0x80).take(MAX_AXES + 1).count().max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::oip::grpc::proto::InferTensorContents;
    use crate::protocol::oip::grpc::proto::infer_parameter::ParameterChoice;
    use crate::protocol::oip::grpc::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};

    fn rejection(request: &ModelInferRequest) -> Option<String> {
        check(&request.encode_to_vec()).err().map(|error| error.to_string())
    }

    /// A field with these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        field.extend_from_slice(bytes);
        field
    }

    #[test]
    fn reads_as_many_parts_as_allowed() {
        let inputs = |many: usize| ModelInferRequest {
            inputs: vec![InferInputTensor::default(); many],
            ..ModelInferRequest::default()
        };
        assert_eq!(rejection(&inputs(MAX_PARTS)), None);
        assert!(rejection(&inputs(MAX_PARTS + 1)).unwrap().contains("4096 tensors"));
        // Raw contents do not count as parts.
        let raw = vec![Bytes::new(); MAX_PARTS];
        let named = ModelInferRequest { id: "7".into(), raw_input_contents: raw, ..inputs(MAX_PARTS) };
        assert_eq!(rejection(&named), None);
        assert_eq!(Head::read(&named.encode_to_vec().into()).unwrap().id, "7");
    }

    #[test]
    fn bounds_parameters_everywhere() {
        let parameters = |many: usize| {
            let value = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(1)) };
            (0..many).map(|name| (name.to_string(), value.clone())).collect()
        };
        let of = |own: usize, inputs: usize, outputs: usize| ModelInferRequest {
            parameters: parameters(own),
            inputs: vec![InferInputTensor { parameters: parameters(inputs), ..InferInputTensor::default() }],
            outputs: vec![InferRequestedOutputTensor { parameters: parameters(outputs), ..Default::default() }],
            ..ModelInferRequest::default()
        };
        let most = MAX_PARTS - 2;
        for (own, inputs, outputs) in [(most, 0, 0), (0, most, 0), (0, 0, most), (1000, 1000, most - 2000)] {
            assert_eq!(rejection(&of(own, inputs, outputs)), None);
            assert!(rejection(&of(own, inputs, outputs + 1)).unwrap().contains("4096 tensors and parameters"));
        }
    }

    #[test]
    fn reads_the_head_without_tensors_within_limits() {
        let parameters = |many: usize| (0..many).map(|name| (name.to_string(), InferParameter::default())).collect();
        let input = InferInputTensor { name: "x".repeat(MAX_FIELDS), ..InferInputTensor::default() };
        let request = |many: usize| ModelInferRequest {
            model_name: "digits".into(),
            model_version: "1".into(),
            parameters: parameters(many),
            inputs: vec![input.clone(); 3],
            ..ModelInferRequest::default()
        };
        let head = Head::read(&request(7).encode_to_vec().into()).unwrap();
        assert_eq!((&*head.model_name, &*head.model_version, head.parameters.len()), ("digits", "1", 7));
        assert!(Head::read(&request(MAX_PARTS).encode_to_vec().into()).is_err());
        let run_repeatedly = field(4, &field(1, b"").repeat(MAX_FIELDS + 1));
        assert!(Head::read(&run_repeatedly.into()).unwrap_err().to_string().contains("fields"));
    }

    #[test]
    fn bounds_names_and_texts_everywhere() {
        let name = |length: usize| field(1, &vec![b'n'; length]);
        let text = |length: usize| field(2, &field(3, &vec![b't'; length]));
        let at = |part: u8, inner: Vec<u8>| field(part, &inner);
        let long = MAX_NAME + 1;
        for (message, in_head) in [
            (name(long), true),
            (field(2, &vec![b'v'; long]), true),
            (field(3, &vec![b'i'; long]), true),
            (at(4, name(long)), true),
            (at(4, text(MAX_TEXT + 1)), true),
            (at(5, name(long)), false),
            (at(5, field(2, &vec![b'd'; long])), false),
            (at(5, field(4, &name(long))), false),
            (at(6, name(long)), false),
            (at(6, field(2, &text(MAX_TEXT + 1))), false),
        ] {
            let refused = check(&message).unwrap_err().to_string();
            assert!(refused.contains("at most 4096 bytes") || refused.contains("at most 65536 bytes"), "{refused}");
            assert_eq!(Head::read(&message.into()).is_err(), in_head);
        }
        let longest = [name(MAX_NAME), at(4, text(MAX_TEXT)), at(5, name(MAX_NAME))].concat();
        check(&longest).unwrap();
        Head::read(&longest.into()).unwrap();
        for many in [name(MAX_NAME).repeat(257), at(4, text(MAX_TEXT)).repeat(17)] {
            assert!(check(&many).unwrap_err().to_string().contains("at most 1048576 bytes"));
        }
    }

    #[test]
    fn bounds_axes_in_both_encodings() {
        let shape = |sizes: Vec<i64>| ModelInferRequest {
            inputs: vec![InferInputTensor { shape: sizes, ..InferInputTensor::default() }; 2],
            ..ModelInferRequest::default()
        };
        assert_eq!(rejection(&shape(vec![1000; MAX_AXES])), None);
        assert!(rejection(&shape(vec![1; MAX_AXES + 1])).unwrap().contains("at most 64 axes"));
        let one_by_one = |axes: usize| check(&field(5, &[0x18, 1].repeat(axes)));
        one_by_one(MAX_AXES).unwrap();
        one_by_one(MAX_AXES + 1).unwrap_err();
        check(&field(5, &field(3, &[]).repeat(MAX_AXES + 1))).unwrap_err();
    }

    #[test]
    fn bounds_repeated_fields() {
        let name = field(1, b"");
        check(&field(5, &name.repeat(1000))).unwrap();
        let run_repeatedly = name.repeat(MAX_FIELDS + 1);
        let value = field(4, &field(2, &field(3, b"").repeat(MAX_FIELDS)));
        for message in [field(5, &run_repeatedly), field(6, &run_repeatedly), field(4, &run_repeatedly), value] {
            assert!(check(&message).unwrap_err().to_string().contains("fields"));
        }
    }

    #[test]
    fn bounds_texts_of_all_inputs() {
        let of = |texts: usize| {
            let contents =
                InferTensorContents { bytes_contents: vec![[].as_slice().into(); texts], ..Default::default() };
            let input = InferInputTensor { contents: Some(contents), shape: vec![1], ..InferInputTensor::default() };
            ModelInferRequest { id: "7".into(), inputs: vec![input; 2], ..ModelInferRequest::default() }
        };
        assert_eq!(rejection(&of(MAX_STRINGS / 2)), None);
        assert!(rejection(&of(MAX_STRINGS / 2 + 1)).unwrap().contains("4194304 strings"));
        let hidden = [&[0x7b, 0x7c][..], &[0x2a, 0].repeat(MAX_PARTS + 1)].concat();
        assert!(check(&hidden).is_err(), "what follows a group of an unknown field is counted");
    }

    #[test]
    fn estimates_memory_before_decoding() {
        let of = |contents: InferTensorContents| {
            let input = InferInputTensor { contents: Some(contents), ..InferInputTensor::default() };
            let request = ModelInferRequest { inputs: vec![input.clone(), input], ..ModelInferRequest::default() };
            check(&request.encode_to_vec()).unwrap() / 2
        };
        assert_eq!(of(InferTensorContents { bool_contents: vec![true; 9], ..Default::default() }), 9);
        assert_eq!(of(InferTensorContents { int_contents: vec![-1, 0, i32::MAX], ..Default::default() }), 12);
        assert_eq!(of(InferTensorContents { uint_contents: vec![1, 0, u32::MAX], ..Default::default() }), 12);
        assert_eq!(of(InferTensorContents { int64_contents: vec![-1, 0, i64::MAX], ..Default::default() }), 24);
        assert_eq!(of(InferTensorContents { uint64_contents: vec![0; 1000], ..Default::default() }), 8000);
        assert_eq!(of(InferTensorContents { fp32_contents: vec![0.5; 7], ..Default::default() }), 28);
        assert_eq!(of(InferTensorContents { fp64_contents: vec![0.5; 7], ..Default::default() }), 56);
        assert_eq!(of(InferTensorContents { bytes_contents: vec![Bytes::new(); 3], ..Default::default() }), 168);
        // Not packed: each element with its own tag.
        assert_eq!(check(&field(5, &field(5, &[0x18, 1].repeat(5)))).unwrap(), 40);
    }

    #[test]
    fn does_not_count_numbers_as_fields() {
        let contents = InferTensorContents { fp32_contents: vec![1.0; MAX_FIELDS + 1], ..Default::default() };
        let input = InferInputTensor { contents: Some(contents), ..InferInputTensor::default() };
        let packed = ModelInferRequest { inputs: vec![input], ..ModelInferRequest::default() };
        assert_eq!(rejection(&packed), None);
        let one_by_one = [0x35, 0, 0, 0, 0].repeat(MAX_FIELDS + 1);
        check(&field(5, &field(5, &one_by_one))).unwrap();
    }

    proptest! {
        #[test]
        fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = check(&bytes);
        }
    }
}
