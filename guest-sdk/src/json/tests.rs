use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::read;

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Options {
    size: (u32, u32),
    #[serde(default)]
    mean: Option<Vec<f32>>,
    #[serde(default)]
    names: BTreeMap<String, String>,
    way: Variant,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Variant {
    Whole,
    InPieces(u8),
    Mixed { share: f64, letters: Vec<char> },
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
enum Either {
    Number(i64),
    Text(String),
    Many(Vec<Either>),
}

/// What serde_json reads from its own text is read the same here.
fn same<T: for<'de> Deserialize<'de> + Serialize + PartialEq + std::fmt::Debug>(value: &serde_json::Value) {
    let expected: T = serde_json::from_value(value.clone()).unwrap();
    for text in [value.to_string(), serde_json::to_string_pretty(value).unwrap()] {
        assert_eq!(read::<T>(&text).unwrap(), expected, "{text}");
    }
}

#[test]
fn values_are_read_as_serde_json_reads_them() {
    for way in [json!("whole"), json!({"in-pieces": 7}), json!({"mixed": {"share": -0.25e-3, "letters": ["ä", "\n"]}})]
    {
        same::<Options>(&json!({"size": [3, 4], "mean": [0.485, 1, 1e3], "names": {"a\"b": "\\ü"}, "way": way}));
    }
    same::<Options>(&json!({"way": {"in-pieces": 0}, "mean": null, "size": [0, 4_294_967_295_u32]}));
    same::<Either>(&json!([1, "two", [-3, []], i64::MIN]));
    same::<Vec<u64>>(&json!([0, u64::MAX]));
    same::<Vec<f64>>(&json!([0.1, -1.5e300, 5e-324, 0.300_000_000_000_000_04, 123_456_789_012_345_680_000.0]));
    same::<(bool, Option<bool>, ())>(&json!([true, null, null]));
    same::<serde_json::Value>(&json!({"a": [{}, [], "", 1.5, false, null], "b": {"c": "\u{1}\u{10ffff}"}}));
}

#[test]
fn escapes_are_read() {
    assert_eq!(read::<String>(r#" "a\"\\\/\b\f\n\r\tA😀é" "#).unwrap(), "a\"\\/\u{8}\u{c}\n\r\tA😀é");
    assert_eq!(read::<&str>(r#""borrowed""#).unwrap(), "borrowed");
    for broken in [r#""\ud83d""#, r#""\ud83dA""#, r#""\ude00""#, r#""\u00""#, r#""\u+123""#, r#""\x""#, "\"a\n\""] {
        assert!(read::<String>(broken).is_err(), "{broken}");
    }
}

#[test]
fn a_fault_says_where_it_is() {
    let fault = |text: &str| read::<Options>(text).unwrap_err();
    assert_eq!(fault(r#"{"size": [1, "2"], "way": "whole"}"#), "`size[1]`: text, not u32");
    assert_eq!(fault(r#"{"size": [1, -2], "way": "whole"}"#), "`size[1]`: a value that is not u32, but a whole number");
    assert_eq!(fault(r#"{"size": [1], "way": "whole"}"#), "`size`: invalid length 1, expected a tuple of size 2");
    assert_eq!(fault(r#"{"size": [1, 2]}"#), "missing field `way`");
    assert_eq!(
        fault(r#"{"way": {"mixed": {"share": 0.5, "letters": ["ab"]}}}"#),
        "`way.letters[0]`: a value that is not a character, but text"
    );
    assert!(fault(r#"{"way": "hole"}"#).starts_with("`way`: unknown variant `hole`, expected one of `whole`"));
    assert!(fault(r#"{"wy": 1}"#).starts_with("unknown field `wy`, expected one of `size`"));
}

#[test]
fn what_is_not_json_is_refused() {
    let broken = [
        "",
        " ",
        "{",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "nan",
        "tru",
        "nulll",
        "1 2",
        "\"",
        "'a'",
        "1e999",
    ];
    for text in broken {
        assert!(read::<serde_json::Value>(text).is_err(), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text}");
    }
    let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
    assert!(read::<serde::de::IgnoredAny>(&deep(128)).is_ok());
    assert!(read::<serde::de::IgnoredAny>(&deep(129)).unwrap_err().ends_with("within each other"));
}
