//! Tracks where HTTP/1 requests begin and end in the bytes of a connection.
//!
//! hyper takes a request that has both `Transfer-Encoding` and `Content-Length` as the first says, drops the second,
//! and closes the connection. Whoever stands before the server may have gone by the second, so such a request is
//! refused; but of what hyper hands on, nobody can tell.

use std::collections::VecDeque;

/// Follows the requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// the line that is being read: as much of it as tells what it is
    line: Vec<u8>,
    head: Head,
    /// of the chunked requests that have come and were not asked for, whether each says a length as well
    chunked: VecDeque<bool>,
}

/// The framing of the body that a head declares.
#[derive(Debug, Default)]
struct Head {
    chunked: bool,
    length: Option<u64>,
    /// whether it says something that only hyper can tell
    unclear: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// before the first line of a head
    #[default]
    Begin,
    /// within a head
    Head,
    /// so many bytes of a body are to come
    Body(u64),
    /// the length of a chunk
    ChunkLength,
    /// so many bytes of a chunk are to come, and the end of its line
    Chunk(u64),
    /// what follows the last chunk
    Trailers,
    /// it is another protocol, or nothing that anybody reads
    Other,
}

/// As much of a line is kept: names and numbers are shorter.
const LINE: usize = 64;

impl Framing {
    /// Whether the next chunked request says a length as well: each is asked for once, in order.
    pub(super) fn next_chunked(&mut self) -> bool {
        self.chunked.pop_front().unwrap_or_default()
    }

    /// More bytes have come.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Other => return,
                State::Body(left) => {
                    bytes = skip(left, bytes);
                    if *left == 0 {
                        self.state = State::Begin;
                    }
                }
                State::Chunk(left) if *left > 0 => bytes = skip(left, bytes),
                _ => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    self.line.extend(part.iter().take(LINE.saturating_sub(self.line.len())));
                    bytes = rest;
                    if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        self.state = self.after(line.trim_ascii_end());
                        self.line = line;
                        self.line.clear();
                    }
                }
            }
        }
    }

    /// The state after this line.
    fn after(&mut self, line: &[u8]) -> State {
        match self.state {
            // Empty lines may stand before a request.
            State::Begin if line.is_empty() => State::Begin,
            State::Begin if line.starts_with(b"PRI * HTTP/2") => State::Other,
            State::Begin => {
                self.head = Head::default();
                State::Head
            }
            State::Head if line.is_empty() => self.after_head(),
            State::Head => {
                self.field(line);
                State::Head
            }
            State::ChunkLength => match chunk_length(line) {
                Some(0) => State::Trailers,
                Some(length) => State::Chunk(length),
                None => State::Other,
            },
            State::Chunk(_) => State::ChunkLength,
            State::Trailers if line.is_empty() => State::Begin,
            other => other,
        }
    }

    fn after_head(&mut self) -> State {
        let Head { chunked, length, unclear } = std::mem::take(&mut self.head);
        if chunked {
            self.chunked.push_back(length.is_some());
        }
        match (chunked, length) {
            _ if unclear => State::Other,
            (true, _) => State::ChunkLength,
            (false, Some(length @ 1..)) => State::Body(length),
            (false, _) => State::Begin,
        }
    }

    fn field(&mut self, line: &[u8]) {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.head.chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(value).ok().map(|value| value.trim_start_matches(':').trim());
            let length = digits.and_then(|digits| digits.parse().ok()).filter(|_| line.len() < LINE);
            self.head.unclear |= length.is_none();
            self.head.length = Some(length.unwrap_or_default());
        }
    }
}

/// What is left of the bytes behind those that are still to come.
fn skip<'b>(left: &mut u64, bytes: &'b [u8]) -> &'b [u8] {
    let skipped = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= skipped as u64;
    &bytes[skipped..]
}

/// Hexadecimal digits, before what may follow them.
fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request, and whether it is a chunked one that says a length as well.
    fn request() -> impl Strategy<Value = (Vec<u8>, Option<bool>)> {
        let body = prop_oneof![
            "[a-z\r\n:0]{0,40}",
            // What looks like a request of its own.
            Just("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\n".to_owned()),
        ];
        let line_end = prop_oneof![Just("\r\n"), Just("\n")];
        let framing = 0..4_u8;
        (body, line_end, framing, 1..30_usize, "[A-Za-z-]{1,90}").prop_map(|(body, end, framing, chunk, other)| {
            let name = |name: &str| if chunk % 2 == 0 { name.to_ascii_uppercase() } else { name.to_owned() };
            let (length, chunked) =
                (format!("{}: {}{end}", name("content-length"), body.len()), name("transfer-encoding"));
            let chunked = format!("{chunked}: chunked{end}");
            let other = format!("x-{other}: content-length: 7{end}");
            let (fields, said) = match framing {
                0 => (length, None),
                1 => (chunked, Some(false)),
                2 => (length + &chunked, Some(true)),
                _ => (chunked + &length, Some(true)),
            };
            let mut bytes = format!("POST /a:b HTTP/1.1{end}{other}{fields}{other}{end}").into_bytes();
            if said.is_none() {
                bytes.extend_from_slice(body.as_bytes());
            } else {
                for part in body.as_bytes().chunks(chunk) {
                    bytes.extend_from_slice(format!("{:X};x=\"y\"\r\n", part.len()).as_bytes());
                    bytes.extend_from_slice(part);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\nx: y\r\n\r\n");
            }
            (bytes, said)
        })
    }

    proptest! {
        #[test]
        fn detects_chunked_requests(requests in prop::collection::vec(request(), 0..6), cut in 1..50_usize) {
            let bytes: Vec<_> = requests.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            let mut framing = Framing::default();
            bytes.chunks(cut).for_each(|part| framing.read(part));
            prop_assert_eq!(framing.state, State::Begin);
            let public_message: Vec<_> = framing.chunked.into_iter().collect();
            prop_assert_eq!(public_message, requests.iter().filter_map(|(_, said)| *said).collect::<Vec<_>>());
        }

        #[test]
        fn tolerates_malformed_input(bytes: Vec<u8>, cut in 1..50_usize) {
            let mut framing = Framing::default();
            bytes.chunks(cut).for_each(|part| framing.read(part));
            prop_assert!(framing.line.len() <= LINE);
        }
    }

    #[test]
    fn ignores_other_protocols() {
        let mut framing = Framing::default();
        framing.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n");
        assert_eq!((framing.state, framing.next_chunked()), (State::Other, false));
    }
}
