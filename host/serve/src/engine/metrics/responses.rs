//! Responses by protocol and status.

use std::sync::atomic::{AtomicU64, Ordering};

use super::sharded_counter::ShardedCounter;

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolLabel {
    /// `/predict` and the other paths of gpux's own API
    Http,
    /// the Open Inference Protocol on HTTP, `/v2`
    OipHttp,
    /// gRPC
    Grpc,
    /// OpenAI's API, `/v1`
    OpenAi,
    /// documents ranked as by Jina and Cohere
    Rerank,
    /// the paths of Text Embeddings Inference
    Tei,
}

impl ProtocolLabel {
    pub(crate) const ALL: [Self; 6] = [Self::Http, Self::OipHttp, Self::Grpc, Self::OpenAi, Self::Rerank, Self::Tei];

    /// Its name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::OipHttp => "oip-http",
            Self::Grpc => "grpc",
            Self::OpenAi => "openai",
            Self::Rerank => "rerank",
            Self::Tei => "tei",
        }
    }
}

/// Statuses with a counter of their own; all others are counted by their hundred.
const STATUSES: [u16; 24] = [
    100, 200, 204, 300, 304, 400, 401, 403, 404, 405, 406, 408, 413, 414, 415, 421, 429, 431, 499, 500, 501, 503, 504,
    505,
];

/// Names of gRPC's status codes, by number.
const GRPC: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Responses by protocol and status.
#[derive(Debug, Default)]
pub(crate) struct ResponseCounts(ShardedCounter<[[AtomicU64; STATUSES.len()]; ProtocolLabel::ALL.len()]>);

impl ResponseCounts {
    /// Counts a response. For gRPC, `status` is the gRPC code.
    pub(crate) fn count(&self, protocol: ProtocolLabel, status: u16) {
        let slot = if protocol == ProtocolLabel::Grpc {
            usize::from(status).min(GRPC.len() - 1)
        } else {
            let exact = STATUSES.binary_search(&status);
            exact.or_else(|_| STATUSES.binary_search(&(status / 100 * 100))).unwrap_or(STATUSES.len() - 1)
        };
        if let Some(count) = self.0.shard().get(protocol as usize).and_then(|counts| counts.get(slot)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts by protocol and status.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (ProtocolLabel, String, u64)> {
        let of = |protocol: ProtocolLabel| {
            let name = move |slot: usize| match protocol {
                ProtocolLabel::Grpc => GRPC.get(slot).unwrap_or(&"UNKNOWN").to_string(),
                _ => STATUSES.get(slot).map(ToString::to_string).unwrap_or_default(),
            };
            let count = |slot: usize| {
                self.0.shards().map(|counts| counts[protocol as usize][slot].load(Ordering::Relaxed)).sum::<u64>()
            };
            let counts = (0..STATUSES.len()).map(|slot| (slot, count(slot))).filter(|(_, count)| *count > 0);
            counts.map(|(slot, count)| (protocol, name(slot), count)).collect::<Vec<_>>()
        };
        ProtocolLabel::ALL.into_iter().flat_map(of)
    }

    /// Counts of successes and failures.
    pub(crate) fn outcome(&self) -> (u64, u64) {
        let succeeded = |status: &str| status == "OK" || status.starts_with('2');
        self.counts().fold(
            (0, 0),
            |(good, bad), (_, status, count)| {
                if succeeded(&status) { (good + count, bad) } else { (good, bad + count) }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_responses_by_protocol_and_status() {
        let responses = ResponseCounts::default();
        for (protocol, status) in [
            (ProtocolLabel::Http, 200),
            (ProtocolLabel::Http, 200),
            (ProtocolLabel::Http, 418),
            (ProtocolLabel::OipHttp, 503),
            (ProtocolLabel::Grpc, 0),
            (ProtocolLabel::Grpc, 14),
            (ProtocolLabel::Grpc, 99),
        ] {
            responses.count(protocol, status);
        }
        let counts: Vec<_> =
            responses.counts().map(|(protocol, status, count)| (protocol.name(), status, count)).collect();
        let expected = [
            ("http", "200", 2),
            ("http", "400", 1),
            ("oip-http", "503", 1),
            ("grpc", "OK", 1),
            ("grpc", "UNAVAILABLE", 1),
            ("grpc", "UNAUTHENTICATED", 1),
        ];
        assert_eq!(counts, expected.map(|(protocol, status, count)| (protocol, status.to_owned(), count)));
        assert_eq!(responses.outcome(), (3, 4));
    }

    #[test]
    fn statuses_are_sorted() {
        assert!(STATUSES.is_sorted());
    }
}
