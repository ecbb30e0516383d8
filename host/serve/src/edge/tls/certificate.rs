//! Reads the validity of certificates, so that the operator is warned before clients reject them.

use std::time::{Duration, SystemTime};

/// The start and end of a certificate's validity (X.509 in DER); `None` if malformed.
pub(crate) fn validity(der: &[u8]) -> Option<(SystemTime, SystemTime)> {
    const VERSION: u8 = 0xa0;
    let mut certificate = Elements(Elements(der).next(SEQUENCE)?);
    let mut signed = Elements(certificate.next(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.any()?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        signed.any()?;
    }
    let mut validity = Elements(signed.next(SEQUENCE)?);
    Some((time(validity.any()?)?, time(validity.any()?)?))
}

const SEQUENCE: u8 = 0x30;

/// A sequence of DER elements.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The content of the next element, which must have this tag.
    fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The tag and content of the next element.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = self.0 else { return None };
        let (length, rest) = match usize::from(*length) {
            short @ 0..0x80 => (short, rest),
            long => {
                let (bytes, rest) =
                    rest.split_at_checked(long - 0x80).filter(|(bytes, _)| (1..=4).contains(&bytes.len()))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

/// `UTCTime` or `GeneralizedTime` (RFC 5280, 4.1.2.5), both in UTC with seconds.
fn time((tag, text): (u8, &[u8])) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let number = |from: usize| text.get(from..from + 2)?.parse::<u64>().ok();
    let (year, rest) = match (tag, text.len()) {
        (0x17, 12) => (number(0).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        (0x18, 14) => (number(0)? * 100 + number(2)?, 4),
        _ => return None,
    };
    let part = |place: usize| number(rest + 2 * place);
    let (month, day) = (part(0).filter(|month| (1..=12).contains(month))?, part(1)?);
    // Days since 1970-01-01, in years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = (365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day).checked_sub(719_469)?;
    let seconds = days * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The reason that a certificate is not valid at this time.
pub(crate) fn fault(der: &[u8], now: SystemTime) -> Option<String> {
    let days = |time: Duration| time.as_secs() / 86_400;
    match validity(der)? {
        (_, until) if until <= now => {
            let ago = days(now.duration_since(until).unwrap_or_default());
            Some(format!("expired {ago} days ago: clients will refuse it"))
        }
        (from, _) if from > now => {
            let left = days(from.duration_since(now).unwrap_or_default());
            Some(format!("is valid in {left} days only: until then, clients will refuse it"))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests {
    use proptest::prelude::*;
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// A certificate of the TLS tests.
    fn first() -> Vec<u8> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tls/first.pem");
        CertificateDer::from_pem_file(path).unwrap().to_vec()
    }

    /// The same certificate, but valid until the last second of 2001.
    pub(crate) fn expired() -> Vec<u8> {
        let mut der = first();
        let dates: Vec<_> = (0..der.len() - 13).filter(|place| der[*place] == 0x17 && der[place + 1] == 13).collect();
        for (place, text) in dates.iter().zip([b"010101000000Z", b"011231235959Z"]) {
            der[place + 2..place + 15].copy_from_slice(text);
        }
        if dates.len() < 2 {
            let place = der.windows(2).position(|pair| pair == [0x18, 15]).unwrap();
            der[place + 2..place + 17].copy_from_slice(b"20011231235959Z");
        }
        der
    }

    #[test]
    fn reads_the_validity_of_certificates() {
        // As openssl prints it: Nov 21 18:00:21 2026 to Oct 28 18:00:21 2126.
        let (from, until) = validity(&first()).unwrap();
        assert_eq!((from, until), (at(1_795_284_021), at(4_948_884_021)));
        assert_eq!(fault(&first(), from), None);
        assert!(fault(&first(), until).unwrap().contains("expired 0 days ago"));
        assert!(fault(&first(), from - Duration::from_hours(49)).unwrap().contains("in 2 days"));
        assert_eq!(validity(&expired()).unwrap().1, at(1_009_843_199));
    }

    #[test]
    fn reads_both_kinds_of_time() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "000229120000Z", Some(951_825_600)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x18, "20500101000000Z", Some(2_524_608_000)),
            (0x18, "99991231235959Z", Some(253_402_300_799)),
            (0x18, "19691231235959Z", None),
            (0x17, "701301000000Z", None),
            (0x17, "7001010000Z", None),
            (0x17, "700101000000", None),
            (0x17, "70010100000\u{fc}", None),
        ] {
            assert_eq!(time((tag, text.as_bytes())), seconds.map(at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn tolerates_damaged_certificates(place in 0..1000_usize, byte: u8, length in 0..1000_usize) {
            let mut der = first();
            let place = place % der.len();
            der[place] = byte;
            let _ = validity(&der);
            let _ = validity(der.get(..length).unwrap_or(&der));
        }
    }
}
