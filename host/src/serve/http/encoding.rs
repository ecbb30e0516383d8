//! Compression of bodies: gzip and deflate, both ways.

use axum::Router;
use http::{Extensions, HeaderMap, StatusCode, Version};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _, SizeAbove};
use tower_http::decompression::RequestDecompressionLayer;

/// Answers smaller than this, in bytes, are sent faster than they are compressed.
const SMALL: u64 = 1024;

/// Compresses the results that those who ask for it are given. Errors stay readable for clients that
/// ask, but look only at results.
pub(in crate::serve) fn compressed<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    let result = |status: StatusCode, _: Version, _: &HeaderMap, _: &Extensions| status == StatusCode::OK;
    let results = DefaultPredicate::new().and(result);
    router.layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(results))
}

/// Compresses answers for clients that accept it without asking for it: small ones stay as they are, and so
/// do pictures and streams of events.
pub(super) fn compressed_if_large(router: Router) -> Router {
    let large = DefaultPredicate::new().and(SizeAbove::new(SMALL));
    router.layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(large))
}

/// Decompresses requests as they are read. Another encoding is left for the handler to refuse.
pub(super) fn decompressed(router: Router) -> Router {
    router.layer(RequestDecompressionLayer::new().pass_through_unaccepted(true))
}
