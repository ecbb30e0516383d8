//! Messages, held against what they would become before they are read.
//!
//! An empty tensor is two bytes of a message and some hundred in memory: a body within its bounds could
//! take all the memory there is.

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::serve::oip::parameters::MAX_PARTS;

/// Elements of BYTES that the contents of one message hold.
const MAX_ELEMENTS: usize = 4 << 20;

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
    let (mut fields, mut elements) = (0, 0);
    for (number, field) in Fields(message) {
        fields += 1;
        if number == INPUTS {
            let contents = Fields(field).filter(|(number, _)| *number == CONTENTS);
            elements +=
                contents.flat_map(|(_, contents)| Fields(contents)).filter(|(number, _)| *number == BYTES).count();
        }
        if fields > MAX_PARTS {
            return Err(Status::invalid_argument(format!("a message has at most {MAX_PARTS} tensors and parameters")));
        }
        if elements > MAX_ELEMENTS {
            let message =
                format!("the contents of a message have at most {MAX_ELEMENTS} texts; send them as raw contents");
            return Err(Status::invalid_argument(message));
        }
    }
    Ok(())
}

/// `ModelInferRequest.inputs`, as open_inference.proto numbers it.
const INPUTS: u64 = 5;
/// `InferInputTensor.contents`.
const CONTENTS: u64 = 5;
/// `InferTensorContents.bytes_contents`.
const BYTES: u64 = 8;

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

    use super::super::proto::model_infer_request::InferInputTensor;
    use super::super::proto::{InferTensorContents, ModelInferRequest};
    use super::*;

    #[test]
    fn as_many_parts_as_a_pipeline_could_take_are_read() {
        let inputs = |many: usize| ModelInferRequest {
            inputs: vec![InferInputTensor::default(); many],
            ..ModelInferRequest::default()
        };
        check(&inputs(MAX_PARTS).encode_to_vec()).unwrap();
        let refused = check(&inputs(MAX_PARTS + 1).encode_to_vec()).unwrap_err();
        assert!(refused.message().contains("4096 tensors"), "{refused}");
    }

    #[test]
    fn texts_are_counted_in_all_inputs_together() {
        let of = |texts: usize| {
            let contents =
                InferTensorContents { bytes_contents: vec![[].as_slice().into(); texts], ..Default::default() };
            let input = InferInputTensor { contents: Some(contents), shape: vec![1], ..InferInputTensor::default() };
            let request = ModelInferRequest { id: "7".into(), inputs: vec![input; 2], ..ModelInferRequest::default() };
            check(&request.encode_to_vec())
        };
        of(MAX_ELEMENTS / 2).unwrap();
        let hidden = [&[0x7b, 0x7c][..], &[0x2a, 0].repeat(MAX_PARTS)].concat();
        assert!(check(&hidden).is_err(), "what follows a group of an unknown field is counted");
        assert!(of(MAX_ELEMENTS / 2 + 1).unwrap_err().message().contains("raw contents"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = check(&bytes);
        }
    }
}
