//! Reads the fields of a Protobuf message without decoding it.

/// Iterates over fields: the number of each, and its bytes if its wire type has a length. Ends at malformed input.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let tag = varint(&mut self.0)?;
        let length = match tag & 7 {
            0 => return varint(&mut self.0).map(|_| (tag >> 3, &[][..])),
            1 => 8,
            2 => usize::try_from(varint(&mut self.0)?).ok()?,
            // Groups, which prost skips, have no length: their contents are counted as well.
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
