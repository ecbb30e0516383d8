//! Tracks where HTTP/1 requests begin and end in the bytes of a connection.
//!
//! For a request with both `Transfer-Encoding` and `Content-Length`, hyper uses the first, drops the second and closes
//! the connection. A proxy in front of the server may have used the second (request smuggling), so the server rejects
//! such a request. hyper removes the header before the service sees it; only the raw bytes show it.
//!
//! Test: `closes_connections_with_wrong_content_length`.

use std::collections::VecDeque;

use super::connection_memory::{MemoryDemand, READ};

/// Follows the requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// the start of the current line, at most [`LINE`] bytes
    line: Vec<u8>,
    head: Head,
    /// bytes of the current head so far
    in_head: usize,
    is_http2: bool,
    /// for each chunked request not yet taken by [`Framing::next_chunked`], whether it has a `Content-Length` as well
    chunked: VecDeque<bool>,
}

/// The framing of the body that a head declares.
#[derive(Debug, Default)]
struct Head {
    chunked: bool,
    length: Option<u64>,
    /// whether its `Content-Length` is one that only hyper can judge
    unclear: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// before the first line of a head
    #[default]
    Begin,
    /// within a head
    Head,
    /// within a body, with this many bytes left
    Body(u64),
    /// before the line with a chunk's length
    ChunkLength,
    /// within a chunk, with this many bytes left before the end of its line
    Chunk(u64),
    /// after the last chunk
    Trailers,
    /// another protocol, or bytes that hyper does not parse either
    Other,
}

/// The number of bytes kept of a line: the names and numbers of interest are shorter.
const LINE: usize = 64;

impl Framing {
    /// Whether the next chunked request has a `Content-Length` as well. Called once per chunked request, in order.
    pub(super) fn next_chunked(&mut self) -> bool {
        self.chunked.pop_front().unwrap_or_default()
    }

    /// What the connection needs to read on: a head that is longer than one read takes a larger buffer.
    pub(super) const fn need(&self) -> MemoryDemand {
        match self.in_head {
            _ if self.is_http2 => MemoryDemand::Http2,
            READ.. => MemoryDemand::Buffer,
            _ => MemoryDemand::Nothing,
        }
    }

    /// Processes more bytes.
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
                    self.in_head = if self.is_in_head() { self.in_head.saturating_add(part.len()) } else { 0 };
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

    const fn is_in_head(&self) -> bool {
        matches!(self.state, State::Begin | State::Head)
    }

    /// The state after this line.
    fn after(&mut self, line: &[u8]) -> State {
        match self.state {
            // Empty lines may precede a request.
            State::Begin if line.is_empty() => State::Begin,
            State::Begin if line.starts_with(b"PRI * HTTP/2") => {
                self.is_http2 = true;
                State::Other
            }
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
        self.in_head = 0;
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

/// Skips up to `left` bytes; returns the bytes after them.
fn skip<'b>(left: &mut u64, bytes: &'b [u8]) -> &'b [u8] {
    let skipped = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= skipped as u64;
    &bytes[skipped..]
}

/// The hexadecimal length, before any chunk extension.
fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request; if it is chunked, whether it has a `Content-Length` as well.
    fn request() -> impl Strategy<Value = (Vec<u8>, Option<bool>)> {
        let body = prop_oneof![
            "[a-z\r\n:0]{0,40}",
            // Text that looks like a request of its own.
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
    fn long_heads_need_a_buffer() {
        let mut framing = Framing::default();
        framing.read(b"POST / HTTP/1.1\r\n");
        let line = [&[b'x'; 4094][..], b"\r\n"].concat();
        framing.read(&line);
        assert_eq!(framing.need(), MemoryDemand::Nothing);
        framing.read(&line);
        assert_eq!(framing.need(), MemoryDemand::Buffer);
        framing.read(b"content-length: 10000\r\n\r\n");
        assert_eq!(framing.need(), MemoryDemand::Nothing, "a body has a budget of its own");
        framing.read(&[b'x'; 10_000]);
        assert_eq!((framing.state, framing.need()), (State::Begin, MemoryDemand::Nothing));
    }

    #[test]
    fn ignores_other_protocols() {
        let mut framing = Framing::default();
        framing.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n");
        assert_eq!((framing.state, framing.next_chunked(), framing.need()), (State::Other, false, MemoryDemand::Http2));
    }
}
