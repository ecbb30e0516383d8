//! Decodes protobuf field by field, without allocating fields that are skipped.

use prost::DecodeError;
use prost::bytes::{Buf, BufMut as _};
use prost::encoding::{self, DecodeContext, WireType, check_wire_type, decode_key, decode_varint};

use super::forward_reader::{ForwardRead, ForwardReader};

/// Messages inside each other, as protobuf's own decoders take them.
const DEPTH: u32 = 100;

/// Why a model cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("{0}")]
    Field(#[from] DecodeError),
    #[error("recursion limit reached")]
    Depth,
    #[error("a length goes beyond what holds it")]
    Length,
    #[error("a text is not UTF-8")]
    Text,
    #[error("a tensor is given twice in one place")]
    Twice,
}

/// A field whose value comes next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) tag: u32,
    wire: WireType,
}

/// A message that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// bytes of the source that are left after it
    end: usize,
    depth: u32,
}

impl Message {
    /// The message that is the whole source.
    pub(super) const WHOLE: Self = Self { end: 0, depth: 0 };
}

impl<R: ForwardRead> ForwardReader<R> {
    /// The next field; none at the message's end. Its value must be read, or skipped.
    pub(super) fn field(&mut self, message: Message) -> Result<Option<Field>, WireError> {
        match self.remaining().checked_sub(message.end) {
            None => Err(WireError::Length),
            Some(0) => Ok(None),
            Some(_) => {
                let (tag, wire) = decode_key(self)?;
                Ok(Some(Field { tag, wire }))
            }
        }
    }

    pub(super) fn skip(&mut self, field: Field) -> Result<(), WireError> {
        Ok(encoding::skip_field(field.wire, field.tag, self, DecodeContext::default())?)
    }

    /// Begins a message inside of `outer`.
    pub(super) fn enter(&mut self, field: Field, outer: Message) -> Result<Message, WireError> {
        let end = self.end_of(field)?;
        let depth = outer.depth + 1;
        if depth > DEPTH { Err(WireError::Depth) } else { Ok(Message { end, depth }) }
    }

    /// Bytes that a field with a length takes.
    pub(super) fn length(&mut self, field: Field) -> Result<usize, WireError> {
        let end = self.end_of(field)?;
        Ok(self.remaining() - end)
    }

    /// Bytes left in the reader after a length-delimited field.
    fn end_of(&mut self, field: Field) -> Result<usize, WireError> {
        check_wire_type(WireType::LengthDelimited, field.wire)?;
        let length = usize::try_from(decode_varint(self)?).map_err(|_| WireError::Length)?;
        self.remaining().checked_sub(length).ok_or(WireError::Length)
    }

    pub(super) fn integer(&mut self, field: Field) -> Result<i64, WireError> {
        let mut value = 0;
        encoding::int64::merge(field.wire, &mut value, self, DecodeContext::default())?;
        Ok(value)
    }

    /// Hands out every integer of a repeated field, which may be packed.
    pub(super) fn integers<E: From<WireError>>(
        &mut self,
        field: Field,
        mut each: impl FnMut(i64) -> Result<(), E>,
    ) -> Result<(), E> {
        if field.wire != WireType::LengthDelimited {
            return each(self.integer(field)?);
        }
        let end = self.end_of(field)?;
        while self.remaining() > end {
            each(decode_varint(self).map_err(WireError::from)?.cast_signed())?;
        }
        if self.remaining() == end { Ok(()) } else { Err(WireError::Length.into()) }
    }

    /// Reads a text of this many bytes.
    pub(super) fn text(&mut self, length: usize) -> Result<String, WireError> {
        let mut bytes = Vec::with_capacity(length);
        bytes.put(self.take(length));
        String::from_utf8(bytes).map_err(|_| WireError::Text)
    }

    /// Decodes a small message of this many bytes.
    pub(super) fn message<M: prost::Message + Default>(&mut self, length: usize) -> Result<M, WireError> {
        Ok(M::decode(self.take(length))?)
    }
}
