//! Sizes and durations as people write them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

const SIZES: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

const TIMES: [(&str, f64); 6] = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];

/// A number of bytes: `64MB` (10^6 bytes each), `512MiB` (2^20 each), or a plain number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A span of time: `50ms`, `2s`, `1.5min`, or a plain number of seconds. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub Duration);

/// A text that is not a size or a duration; says how one is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    hint: &'static str,
}

impl UnitError {
    /// How it is written.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

/// The number and the unit of `12.5 MB`.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (number, unit) = split(text)?;
            let short = |name: &str| name.len() == 2 && unit.len() == 1 && name[..1].eq_ignore_ascii_case(unit);
            let factor = if unit.is_empty() {
                1
            } else {
                SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit) || short(name))?.1
            };
            let bytes = number * factor as f64;
            (bytes >= 1.0 && bytes < (1_u64 << 60) as f64).then_some(Self(bytes.round() as u64))
        };
        let hint = "write a number and a unit: `512MB`, `2GB` or `64MiB` (KB, MB, GB, TB, KiB, MiB, GiB, TiB, B)";
        read().ok_or_else(|| UnitError { text: shorten(text), what: "size", hint })
    }
}

impl FromStr for TimeSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (number, unit) = split(text)?;
            let factor = if unit.is_empty() { 1.0 } else { TIMES.iter().find(|(name, _)| *name == unit)?.1 };
            Self::from_seconds(number * factor)
        };
        let hint =
            "write a number and a unit: `50ms`, `2s` or `1min`; a plain number is seconds; it must be more than zero";
        read().ok_or_else(|| UnitError { text: shorten(text), what: "duration", hint })
    }
}

impl TimeSpan {
    /// The span that `text` is, or none at all: `0`, `0s`.
    ///
    /// # Errors
    ///
    /// It is neither.
    pub fn parse_or_zero(text: &str) -> Result<Duration, UnitError> {
        let is_unit = |unit: &str| unit.is_empty() || TIMES.iter().any(|(name, _)| *name == unit);
        match split(text) {
            Some((0.0, unit)) if is_unit(unit) => Ok(Duration::ZERO),
            _ => text.parse().map(|Self(time)| time),
        }
    }

    /// This many seconds, if they are more than a nanosecond and less than ten years.
    pub fn from_seconds(seconds: f64) -> Option<Self> {
        (1e-9..3.2e8).contains(&seconds).then(|| Self(Duration::from_secs_f64(seconds)))
    }
}

/// Shortens a text for a message to its first 40 characters.
pub fn shorten(text: &str) -> String {
    if text.chars().count() > 40 { text.chars().take(40).chain(['…']).collect() } else { text.to_owned() }
}

impl fmt::Display for Size {
    /// The largest unit that divides the size, `64MB`, so that it reads back as the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut units: Vec<_> = SIZES.iter().collect();
        units.sort_by_key(|(_, factor)| std::cmp::Reverse(*factor));
        let unit = units.into_iter().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        match unit {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl fmt::Display for TimeSpan {
    /// The largest unit of `s`, `ms`, `us` that divides the span; reads back as the same span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        match nanos {
            _ if nanos.is_multiple_of(1_000_000_000) => write!(f, "{}s", nanos / 1_000_000_000),
            _ if nanos.is_multiple_of(1_000_000) => write!(f, "{}ms", nanos / 1_000_000),
            _ if nanos.is_multiple_of(1_000) => write!(f, "{}us", nanos / 1_000),
            _ => write!(f, "{}s", self.0.as_secs_f64()),
        }
    }
}

macro_rules! unit {
    ($type:ident, $name:literal, $number:expr, $number_schema:tt) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a ", $name))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_f64<E: de::Error>(self, value: f64) -> Result<$type, E> {
                        let read: fn(f64) -> Option<$type> = $number;
                        read(value).ok_or_else(|| E::custom(concat!("not a ", $name)))
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$type, E> {
                        self.visit_f64(value as f64)
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$type, E> {
                        self.visit_f64(value as f64)
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($number_schema)
            }
        }
    };
}

unit!(Size, "size", |bytes| (1.0..1.15e18).contains(&bytes).then_some(Size(bytes as u64)), {
    "type": ["string", "integer"], "format": "gpux-size", "minimum": 1, "maximum": 1_152_921_504_606_846_975_u64,
});
unit!(TimeSpan, "duration", TimeSpan::from_seconds, {
    "type": ["string", "number"], "format": "gpux-duration", "exclusiveMinimum": 0, "maximum": 315_360_000,
});

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("64MB", 64_000_000),
            ("2GB", 2_000_000_000),
            ("512MiB", 512 << 20),
            ("1.5 GiB", 3 << 29),
            ("100", 100),
            ("8gb", 8_000_000_000),
            ("2G", 2_000_000_000),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size, Size(bytes), "{text}");
            assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
        }
        for text in ["", "MB", "-1MB", "0", "2XB", "1e3", "1.2.3MB", "99999999999TB", "2 G B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(64_000_000).to_string(), "64MB");
        assert_eq!(Size(64 << 20).to_string(), "64MiB");
    }

    #[test]
    fn durations() {
        for (text, millis) in
            [("50ms", 50), ("2s", 2000), ("2", 2000), ("0.25", 250), ("1.5min", 90_000), ("1h", 3_600_000)]
        {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string().parse::<TimeSpan>().unwrap(), span);
        }
        for text in ["", "ms", "-1s", "0", "0ms", "5 seconds", "1d", "1e99s", "99999999999h"] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
        for text in ["0", "0s", "0.0 min"] {
            assert_eq!(TimeSpan::parse_or_zero(text), Ok(Duration::ZERO), "{text}");
        }
        assert_eq!(TimeSpan::parse_or_zero("2s"), Ok(Duration::from_secs(2)));
        assert!(["", "s", "0d", "-0"].iter().all(|text| TimeSpan::parse_or_zero(text).is_err()));
    }
}
