//! Reads the messages of a call, with the limits that all bodies have (size, time, memory), compressed or not.
//!
//! tonic would decompress a message in one go on an I/O thread, without a memory budget.
//!
//! Tests: `holds_memory_of_received_messages`, `times_out_incomplete_messages`, `bounds_the_members_of_a_message`.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::engine::body_budget::RequestBudget;
use crate::protocol::http::body::{BodyBuffer, COMPRESSED, read_error};
use crate::protocol::http::compressed_members;
use crate::{ServeError, Server};

/// The message encoding of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Deflate,
}

impl Encoding {
    /// From `grpc-encoding`; `None` if it is not supported.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        match headers.get("grpc-encoding").map(http::HeaderValue::as_bytes) {
            None | Some(b"identity") => Some(Self::Identity),
            Some(b"gzip") => Some(Self::Gzip),
            Some(b"deflate") => Some(Self::Deflate),
            Some(_) => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// The length of a message's head: a compression flag and the message's length.
pub(super) const HEAD: usize = 5;

/// Bytes that are decompressed in one go.
const PIECE: usize = 64 << 10;

/// Reads the messages of a body.
pub(super) struct Messages {
    body: Body,
    encoding: Encoding,
    budget: RequestBudget,
    /// the largest message after decompression, in bytes
    most: usize,
    timeout: Duration,
    /// received bytes that belong to no message yet
    come: Bytes,
}

impl Messages {
    pub(super) fn new(body: Body, encoding: Encoding, most: usize, server: &Server) -> Self {
        let (budget, timeout) = (server.request_budget().for_request(), server.settings().body_timeout);
        Self { body, encoding, budget, most, timeout, come: Bytes::new() }
    }

    /// Reads the only message of a call.
    pub(super) async fn single(mut self) -> Result<Bytes, ServeError> {
        let late = self.timeout;
        let only = async {
            if !self.more().await? {
                return Err(early());
            }
            let message = self.message().await?;
            if self.more().await? {
                return Err(ServeError::invalid("this call takes one message"));
            }
            Ok(message)
        };
        timeout(late, only).await.map_err(|_| ServeError::SlowBody(late))?
    }

    /// Reads the next message. It may start at any time, but must then be complete within the timeout.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ServeError> {
        if !self.more().await? {
            return Ok(None);
        }
        let late = ServeError::SlowBody(self.timeout);
        timeout(self.timeout, self.message()).await.map_err(|_| late)?.map(Some)
    }

    /// Waits for more bytes; `false` if the body has ended.
    async fn more(&mut self) -> Result<bool, ServeError> {
        while self.come.is_empty() {
            let Some(frame) = self.body.frame().await else { return Ok(false) };
            let frame = frame.map_err(|error| read_error(&error))?;
            self.come = frame.into_data().unwrap_or_default();
        }
        Ok(true)
    }

    async fn message(&mut self) -> Result<Bytes, ServeError> {
        let mut head = self.take(HEAD, HEAD).await?;
        let (compressed, length) = (head.get_u8(), head.get_u32() as usize);
        let message = self.take(length, self.most).await?;
        let inflated = || BodyBuffer::new(|| self.budget.clone(), self.most, 0);
        match (compressed, self.encoding) {
            (0, _) => Ok(message),
            (1, Encoding::Gzip) => inflate(CompressedMembers::new(message), inflated()?).await,
            (1, Encoding::Deflate) => inflate(ZlibDecoder::new(PacedBytes::new(message)), inflated()?).await,
            (1, Encoding::Identity) => Err(ServeError::Body("a message is compressed, but not said how".to_owned())),
            _ => Err(ServeError::Body("a message does not say whether it is compressed".to_owned())),
        }
    }

    /// Reads this many bytes.
    async fn take(&mut self, length: usize, most: usize) -> Result<Bytes, ServeError> {
        let budget = self.budget.clone();
        let mut buffer = BodyBuffer::new(|| budget.clone(), most, length)?;
        while buffer.len() < length {
            if !self.more().await? {
                return Err(early());
            }
            let part = self.come.split_to((length - buffer.len()).min(self.come.len()));
            buffer.push(part).await?;
        }
        Ok(buffer.into_bytes())
    }
}

async fn inflate(
    mut decoder: impl Read,
    mut inflated: BodyBuffer<impl Fn() -> RequestBudget>,
) -> Result<Bytes, ServeError> {
    let mut piece = vec![0; PIECE];
    loop {
        match decoder.read(&mut piece).map(|length| piece.get(..length)) {
            Ok(None | Some([])) => return Ok(inflated.into_bytes()),
            Ok(Some(part)) => inflated.copy(part).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::task::yield_now().await,
            Err(error) => return Err(ServeError::Body(error.to_string())),
        }
    }
}

/// Decompresses all gzip members in sequence.
struct CompressedMembers {
    now: GzDecoder<PacedBytes>,
    left: u32,
}

impl CompressedMembers {
    fn new(message: Bytes) -> Self {
        Self { now: GzDecoder::new(PacedBytes::new(message)), left: compressed_members::MOST }
    }
}

impl Read for CompressedMembers {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let length = self.now.read(out)?;
            if length > 0 || out.is_empty() || self.now.get_ref().bytes.is_empty() {
                return Ok(length);
            }
            self.left = self.left.checked_sub(1).ok_or_else(compressed_members::too_many)?;
            let rest = self.now.get_mut().take();
            self.now = GzDecoder::new(rest);
        }
    }
}

/// Compressed bytes in small portions; after each, `read` fails with `WouldBlock`. A decoder reads until it has output,
/// which may be never.
struct PacedBytes {
    bytes: Bytes,
    /// bytes left of this portion
    left: usize,
}

impl PacedBytes {
    const fn new(bytes: Bytes) -> Self {
        Self { bytes, left: COMPRESSED }
    }

    fn take(&mut self) -> Self {
        Self { bytes: std::mem::take(&mut self.bytes), left: self.left }
    }
}

impl Read for PacedBytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(out)?;
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for PacedBytes {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 && !self.bytes.is_empty() {
            self.left = COMPRESSED;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(self.bytes.get(..self.left).unwrap_or(&self.bytes))
    }

    fn consume(&mut self, length: usize) {
        self.bytes.advance(length.min(self.bytes.len()));
        self.left = self.left.saturating_sub(length);
    }
}

fn early() -> ServeError {
    ServeError::Body("it ends within a message".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use proptest::prelude::*;

    use super::*;
    use crate::Settings;
    use gpux::LoadOptions;

    const MOST: usize = 2 << 20;

    fn server(body_memory: usize) -> Server {
        let body_timeout = Duration::from_secs(1);
        Server::new(Settings { body_memory, body_timeout, ..Settings::default() }, LoadOptions::default())
    }

    /// Messages of a body that sends these parts, then nothing, but does not end.
    fn messages(parts: Vec<Vec<u8>>, encoding: Encoding, server: &Server) -> Messages {
        let parts = stream::iter(parts.into_iter().map(Ok::<_, axum::Error>)).chain(stream::pending());
        Messages::new(Body::from_stream(parts), encoding, MOST, server)
    }

    fn of(message: &[u8], compressed: u8) -> Vec<u8> {
        [&[compressed], &(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    fn message(length: usize) -> Vec<u8> {
        of(&vec![7; length], 0)
    }

    fn gzip(message: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(message).unwrap();
        of(&encoder.finish().unwrap(), 1)
    }

    #[tokio::test]
    async fn holds_memory_of_received_messages() {
        let server = server(6 << 10);
        let mut many = messages(vec![message(6 << 10); 5], Encoding::Identity, &server);
        for _ in 0..5 {
            assert_eq!(many.next().await.unwrap().unwrap().len(), 6 << 10);
        }
        let begun = || messages(vec![message(6 << 10)[..5 << 10].to_vec()], Encoding::Identity, &server);
        let mut first = begun();
        let mut reading = Box::pin(first.next());
        assert!(reading.as_mut().now_or_never().is_none());
        assert!(begun().next().await.unwrap_err().to_string().contains("hold as much"));
        drop(reading);
        assert!(begun().next().now_or_never().is_none(), "there is room again");
    }

    #[tokio::test]
    async fn times_out_incomplete_messages() {
        let server = server(1 << 20);
        let mut messages = messages(vec![message(10), message(10)[..7].to_vec()], Encoding::Identity, &server);
        messages.next().await.unwrap().unwrap();
        assert!(matches!(messages.next().await, Err(ServeError::SlowBody(_))));
    }

    #[tokio::test]
    async fn yields_while_decompressing() {
        let server = server(1 << 20);
        let text = b"text ".repeat(100);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let zlib = of(&zlib.finish().unwrap(), 1);
        for (encoding, sent) in [(Encoding::Gzip, gzip(&text)), (Encoding::Deflate, zlib.clone())] {
            assert_eq!(messages(vec![sent], encoding, &server).next().await.unwrap().unwrap(), text);
        }
        for (encoding, sent) in
            [(Encoding::Identity, zlib.clone()), (Encoding::Gzip, zlib), (Encoding::Gzip, of(b"", 2))]
        {
            assert!(matches!(messages(vec![sent], encoding, &server).next().await, Err(ServeError::Body(_))));
        }
        let sent = [100 << 10, 300 << 10].map(|size| gzip(&vec![0; size])).to_vec();
        let mut messages = messages(sent, Encoding::Gzip, &server);
        assert!(messages.next().now_or_never().is_some(), "it is read at once");
        assert!(messages.next().now_or_never().is_none(), "others have their turn in between");
    }

    #[tokio::test]
    async fn yields_while_decompressing_empty_output() {
        // Empty blocks, and the final block.
        let blocks = [[0, 0, 0, 0xff, 0xff].repeat(200_000), vec![1, 0, 0, 0xff, 0xff]].concat();
        let gzip = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff][..], &blocks, &[0; 8]].concat();
        let zlib = [&[0x78, 0x9c][..], &blocks, &[0, 0, 0, 1]].concat();
        let patient = Server::new(Settings { body_memory: 2 << 20, ..Settings::default() }, LoadOptions::default());
        for (encoding, sent) in [(Encoding::Gzip, gzip), (Encoding::Deflate, zlib)] {
            let sent_bytes = sent.len();
            let mut messages = messages(vec![of(&sent, 1)], encoding, &patient);
            let mut reading = Box::pin(messages.next());
            let mut turns = 1;
            let message = poll_fn(|task| {
                let polled = reading.poll_unpin(task);
                turns += usize::from(polled.is_pending());
                polled
            });
            assert!(message.await.unwrap().unwrap().is_empty());
            assert!(turns >= sent_bytes / COMPRESSED, "{turns} turns for {sent_bytes} bytes");
        }
    }

    #[tokio::test]
    async fn bounds_the_members_of_a_message() {
        let patient = Server::new(Settings { body_memory: 2 << 20, ..Settings::default() }, LoadOptions::default());
        let member = gzip(b"x").split_off(HEAD);
        let most = compressed_members::MOST as usize + 1;
        let mut messages =
            messages([most, most + 1].map(|many| of(&member.repeat(many), 1)).to_vec(), Encoding::Gzip, &patient);
        assert_eq!(messages.next().await.unwrap().unwrap().len(), most);
        let refused = messages.next().await.unwrap_err().to_string();
        assert!(refused.contains("more than 4096 compressed members"), "{refused}");
    }

    #[tokio::test]
    async fn bounds_decompressed_messages() {
        let server = server(1 << 20);
        let inflated = async |size: usize| {
            let sent = gzip(&vec![0; size]);
            assert!(sent.len() < 4 << 10);
            messages(vec![sent], Encoding::Gzip, &server).next().await
        };
        let first = inflated(700 << 10).await.unwrap();
        assert!(matches!(inflated(700 << 10).await, Err(ServeError::Overload(_))), "the first holds its share");
        drop(first);
        inflated(700 << 10).await.unwrap();
        let server = self::server(8 << 20);
        let mut bomb = messages(vec![gzip(&vec![0; MOST + 1])], Encoding::Gzip, &server);
        assert!(matches!(bomb.next().await, Err(ServeError::TooLarge(MOST))));
        let said = of(&[], 0)[..1].iter().copied().chain((MOST as u32 + 1).to_be_bytes()).collect();
        let mut said = messages(vec![said], Encoding::Identity, &server);
        assert!(matches!(said.next().await, Err(ServeError::TooLarge(MOST))), "before it comes");
    }

    proptest! {
        #[test]
        fn reassembles_split_messages(lengths in prop::collection::vec(0_usize..20, 0..6), cut in 1_usize..9) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _clock = runtime.enter();
            let all: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let parts: Vec<_> = all.chunks(cut).map(<[u8]>::to_vec).collect();
            let mut messages = messages(parts, Encoding::Identity, &server(1 << 20));
            for length in lengths {
                let message = messages.next().now_or_never().map(|message| message.unwrap().unwrap());
                prop_assert_eq!(message, Some(vec![7; length].into()));
            }
            prop_assert!(messages.next().now_or_never().is_none());
        }
    }
}
