//! The messages of the protocol over gRPC, generated from `proto/open_inference.proto` by
//! `cargo run -p protobuf-messages`.

#![allow(
    clippy::all,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "made by a generator"
)]

include!("../../../../proto/inference.rs");
