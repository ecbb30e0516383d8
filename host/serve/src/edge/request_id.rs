//! Request IDs: the client's `X-Request-Id`, or a new one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The request and response header that carries the ID.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum length of a client's ID, in bytes.
const LONGEST: usize = 128;

/// The client's `X-Request-Id` if it is short and safe to log, else a new ID.
pub(crate) fn from_headers(headers: &HeaderMap) -> HeaderValue {
    let sane = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=LONGEST).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
    };
    headers.get(HEADER).filter(sane).cloned().unwrap_or_else(new)
}

/// 16 hexadecimal digits: unique within this process, and almost certainly unique across processes.
fn new() -> HeaderValue {
    static FIRST: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Multiplication by an odd factor is a bijection: different numbers stay different.
    let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*FIRST);
    let digit = |place: u32| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    let digits: [u8; 16] = std::array::from_fn(|place| digit(place as u32));
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_valid_request_ids() {
        let of = |value: &'static str| from_headers(&HeaderMap::from_iter([(HEADER, HeaderValue::from_static(value))]));
        assert_eq!(of("4bf9-2f35:77b3_4da6.a3ce"), "4bf9-2f35:77b3_4da6.a3ce");
        for odd in ["", "with space", "{\"a\":1}", "a\tb"] {
            let made = of(odd);
            assert_eq!(made.len(), 16, "{made:?}");
            assert_ne!(made, odd);
        }
        let long = HeaderValue::from_str(&"a".repeat(129)).unwrap_or(HeaderValue::from_static(""));
        assert_eq!(from_headers(&HeaderMap::from_iter([(HEADER, long)])).len(), 16);
        assert_ne!(new(), new());
    }
}
