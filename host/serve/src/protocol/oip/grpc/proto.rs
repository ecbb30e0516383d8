//! The messages of the protocol over gRPC, generated from `proto/open_inference.proto` (`tests/protobuf.rs` checks that
//! they are current).

#![allow(
    clippy::all,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "made by a generator"
)]

include!("../../../../proto/inference.rs");
