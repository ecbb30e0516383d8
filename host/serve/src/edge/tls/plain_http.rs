//! Answers a client that speaks plain HTTP to the TLS port, which otherwise sees a connection reset.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MESSAGE: &str = r#"{"error":"ValidationError","message":"this port speaks TLS: use https://","details":{}}"#;

/// How long the rest of the request is read: closing a connection with unread data would discard the response.
const DRAIN_TIME: Duration = Duration::from_millis(500);
const DRAIN_BYTES: u64 = 64 << 10;

/// Whether the client begins with an HTTP method. A TLS handshake begins with the byte 22.
pub(crate) async fn is_plain_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    stream.peek(&mut first).await.is_ok_and(|read| read == 1 && first[0].is_ascii_uppercase())
}

/// Answers 400 and closes the connection.
pub(crate) async fn reject(mut stream: TcpStream) {
    let length = MESSAGE.len();
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let response = format!("{head}Content-Length: {length}\r\n\r\n{MESSAGE}");
    if stream.write_all(response.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = stream.take(DRAIN_BYTES);
    let _ = tokio::time::timeout(DRAIN_TIME, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}
