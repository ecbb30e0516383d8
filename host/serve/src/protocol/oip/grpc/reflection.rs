//! gRPC's reflection service, versions 1 and 1alpha: describes the services to clients that have no protocol files.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use futures_util::StreamExt as _;
use tonic_reflection::pb;
use tonic_reflection::server::Builder;

use crate::Server;

/// The descriptors of `open_inference.proto`, written by `cargo run -p protobuf-messages`.
const DESCRIPTORS: &[u8] = include_bytes!("../../../../proto/inference.binpb");

/// The largest request, in bytes: a name.
const LARGEST_MESSAGE: usize = 16 << 10;

/// The calls of both versions. Their streams end when the server stops.
pub(super) fn router(server: &Arc<Server>) -> Router {
    let builder = || {
        // Each version describes the other, too.
        Builder::configure()
            .include_reflection_service(false)
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(pb::v1alpha::FILE_DESCRIPTOR_SET)
    };
    let mut router = Router::new();
    // Only descriptors that cannot be read fail, and a test reads them.
    if let (Ok(v1), Ok(v1alpha)) = (builder().build_v1(), builder().build_v1alpha()) {
        router = router
            .route_service("/grpc.reflection.v1.ServerReflection/{call}", v1.max_decoding_message_size(LARGEST_MESSAGE))
            .route_service(
                "/grpc.reflection.v1alpha.ServerReflection/{call}",
                v1alpha.max_decoding_message_size(LARGEST_MESSAGE),
            );
    }
    let server = server.clone();
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let mut stopping = server.stopping();
        let stopped = async move { _ = stopping.wait_for(|stopping| *stopping).await };
        let request = request.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(stopped))));
        next.run(request)
    }))
}
