//! Compression of bodies: gzip and deflate, both ways.

use axum::Router;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _, SizeAbove};
use tower_http::decompression::RequestDecompressionLayer;

/// Answers smaller than this, in bytes, are sent faster than they are compressed.
const SMALL: u64 = 1024;

/// Compresses what those who ask for it are given, but pictures, streams of events, and gRPC, which
/// has compression of its own.
pub(super) fn compressed(router: Router) -> Router {
    router.layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
}

/// The same, for clients that accept compression without asking for it: small answers stay as they are.
pub(super) fn compressed_if_large(router: Router) -> Router {
    let large = DefaultPredicate::new().and(SizeAbove::new(SMALL));
    router.layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(large))
}

/// Decompresses requests as they are read. Another encoding is left for the handler to refuse.
pub(super) fn decompressed(router: Router) -> Router {
    router.layer(RequestDecompressionLayer::new().pass_through_unaccepted(true))
}
