//! Messages, held against what they would become before they are read.
//!
//! An empty tensor is two bytes of a message and some hundred in memory: a body within its bounds could
//! take all the memory there is.

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::pipeline::MAX_AXES;
use crate::serve::oip::parameters::MAX_PARTS;

/// Elements of BYTES that the contents of one message hold.
const MAX_TEXTS: usize = 4 << 20;
/// Fields of one message, but those in contents: as many parts as there may be, each with all that it
/// can have.
const MAX_FIELDS: usize = MAX_PARTS * (MAX_AXES + 4);

/// Messages as prost reads and writes them, within bounds.
#[derive(Clone, Debug)]
pub(super) struct Checked<T, U>(ProstCodec<T, U>);

impl<T, U> Default for Checked<T, U> {
    fn default() -> Self {
        Self(ProstCodec::default())
    }
}

impl<T, U> Codec for Checked<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CheckedDecoder(self.0.decoder())
    }
}

/// Looks at a message before prost reads it.
#[derive(Clone, Debug)]
pub(super) struct CheckedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        check(message.chunk())?;
        self.0.decode(message)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Refuses a message of more parts than any pipeline takes. What is broken is left to prost.
fn check(message: &[u8]) -> Result<(), Status> {
    Count::default().walk(Kind::Request, message)
}

/// The messages that a request is made of, as open_inference.proto has them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Input,
    Output,
    /// an entry of a map of parameters
    Parameter,
    /// what such an entry holds
    Value,
    Contents,
}

/// What a message holds, with all that lies in it.
#[derive(Default)]
struct Count {
    /// tensors, outputs and parameters
    parts: usize,
    /// elements of BYTES
    texts: usize,
    /// fields of all kinds, but those in contents: a field may come again and again
    fields: usize,
}

impl Count {
    fn walk(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), Status> {
        let mut axes = 0;
        for (number, field) in Fields(bytes) {
            match (kind, number) {
                (Kind::Contents, 8) => self.text()?,
                (Kind::Request | Kind::Input, 4) | (Kind::Output, 2) => {
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
                (Kind::Request, _) => self.part()?,
                (Kind::Parameter, 2) => self.walk(Kind::Value, field)?,
                (Kind::Input, 3) => {
                    axes += axes_in(field);
                    if axes > MAX_AXES {
                        return Err(refused(format!("a tensor has at most {MAX_AXES} axes")));
                    }
                }
                (Kind::Input, 5) => self.walk(Kind::Contents, field)?,
                _ => {}
            }
            self.fields += usize::from(kind != Kind::Contents);
            if self.fields > MAX_FIELDS {
                return Err(refused(format!("a message has at most {MAX_FIELDS} fields")));
            }
        }
        Ok(())
    }

    fn part(&mut self) -> Result<(), Status> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(refused(format!("a message has at most {MAX_PARTS} tensors and parameters")));
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), Status> {
        self.texts += 1;
        if self.texts > MAX_TEXTS {
            let why = format!("the contents of a message have at most {MAX_TEXTS} texts; send them as raw contents");
            return Err(refused(why));
        }
        Ok(())
    }
}

fn refused(why: String) -> Status {
    Status::invalid_argument(why)
}

/// How many numbers a field holds, one or several that are packed, as far as that may be.
fn axes_in(field: &[u8]) -> usize {
    field.iter().filter(|byte| **byte < 0x80).take(MAX_AXES + 1).count().max(1)
}

/// The fields of a message as they lie in its bytes: the number of each, and its bytes if it is of a
/// kind that has a length. Ends at what is broken.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let tag = varint(&mut self.0)?;
        let length = match tag & 7 {
            0 => return varint(&mut self.0).map(|_| (tag >> 3, &[][..])),
            1 => 8,
            2 => usize::try_from(varint(&mut self.0)?).ok()?,
            // Groups, which prost reads past, have no length: what they hold is counted as well.
            3 | 4 => 0,
            5 => 4,
            _ => return None,
        };
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((tag >> 3, field))
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::super::proto::infer_parameter::ParameterChoice;
    use super::super::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use super::super::proto::{InferParameter, InferTensorContents, ModelInferRequest};
    use super::*;

    fn refusal(request: &ModelInferRequest) -> Option<String> {
        check(&request.encode_to_vec()).err().map(|status| status.message().to_owned())
    }

    /// A field of these bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        field.extend_from_slice(bytes);
        field
    }

    #[test]
    fn as_many_parts_as_a_pipeline_could_take_are_read() {
        let inputs = |many: usize| ModelInferRequest {
            inputs: vec![InferInputTensor::default(); many],
            ..ModelInferRequest::default()
        };
        assert_eq!(refusal(&inputs(MAX_PARTS)), None);
        assert!(refusal(&inputs(MAX_PARTS + 1)).unwrap().contains("4096 tensors"));
    }

    #[test]
    fn parameters_are_counted_wherever_they_lie() {
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
            assert_eq!(refusal(&of(own, inputs, outputs)), None);
            assert!(refusal(&of(own, inputs, outputs + 1)).unwrap().contains("4096 tensors and parameters"));
        }
    }

    #[test]
    fn axes_are_counted_however_they_are_written() {
        let shape = |sizes: Vec<i64>| ModelInferRequest {
            inputs: vec![InferInputTensor { shape: sizes, ..InferInputTensor::default() }; 2],
            ..ModelInferRequest::default()
        };
        assert_eq!(refusal(&shape(vec![1000; MAX_AXES])), None);
        assert!(refusal(&shape(vec![1; MAX_AXES + 1])).unwrap().contains("at most 64 axes"));
        let one_by_one = |axes: usize| check(&field(5, &[0x18, 1].repeat(axes)));
        one_by_one(MAX_AXES).unwrap();
        one_by_one(MAX_AXES + 1).unwrap_err();
        check(&field(5, &field(3, &[]).repeat(MAX_AXES + 1))).unwrap_err();
    }

    #[test]
    fn what_is_said_again_and_again_is_counted() {
        let name = field(1, b"");
        check(&field(5, &name.repeat(1000))).unwrap();
        let again = name.repeat(MAX_FIELDS + 1);
        let value = field(4, &field(2, &field(3, b"").repeat(MAX_FIELDS)));
        for message in [field(5, &again), field(6, &again), field(4, &again), value] {
            assert!(check(&message).unwrap_err().message().contains("fields"));
        }
    }

    #[test]
    fn texts_are_counted_in_all_inputs_together() {
        let of = |texts: usize| {
            let contents =
                InferTensorContents { bytes_contents: vec![[].as_slice().into(); texts], ..Default::default() };
            let input = InferInputTensor { contents: Some(contents), shape: vec![1], ..InferInputTensor::default() };
            ModelInferRequest { id: "7".into(), inputs: vec![input; 2], ..ModelInferRequest::default() }
        };
        assert_eq!(refusal(&of(MAX_TEXTS / 2)), None);
        assert!(refusal(&of(MAX_TEXTS / 2 + 1)).unwrap().contains("raw contents"));
        let hidden = [&[0x7b, 0x7c][..], &[0x2a, 0].repeat(MAX_PARTS + 1)].concat();
        assert!(check(&hidden).is_err(), "what follows a group of an unknown field is counted");
    }

    #[test]
    fn numbers_of_contents_are_no_fields() {
        let contents = InferTensorContents { fp32_contents: vec![1.0; MAX_FIELDS + 1], ..Default::default() };
        let input = InferInputTensor { contents: Some(contents), ..InferInputTensor::default() };
        let packed = ModelInferRequest { inputs: vec![input], ..ModelInferRequest::default() };
        assert_eq!(refusal(&packed), None);
        let one_by_one = [0x35, 0, 0, 0, 0].repeat(MAX_FIELDS + 1);
        check(&field(5, &field(5, &one_by_one))).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = check(&bytes);
        }
    }
}
