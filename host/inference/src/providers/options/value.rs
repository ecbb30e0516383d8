//! Checks a value and converts it for the provider's library.

use serde_json::Value as Json;

use super::{OptionError, OptionKind, OptionSource, OptionValue, ProviderOption, tables};
use crate::providers::ExecutionProvider;
use gpux_core::Size;

/// The most characters of a text: a list of shapes fits, an attack on a parser does not.
const LONGEST_TEXT: usize = 4096;

/// The library's values of `option`, which was written as `name`: more than one value where
/// ONNX Runtime has split it up since.
pub(super) fn values(
    provider: ExecutionProvider,
    option: &ProviderOption,
    name: &str,
    value: &Json,
    source: OptionSource,
) -> Result<Vec<(&'static str, OptionValue)>, OptionError> {
    let wrong = |hint: Option<String>| OptionError {
        in_name: false,
        message: format!("`{name}` of `{provider}` takes {}, but this is {}", option.kind.expected(), shown(value)),
        hint,
    };
    let one = |text: String| Ok(vec![(option.name, OptionValue::Value(text))]);
    match option.kind {
        OptionKind::Switch => {
            let on = switch(value).ok_or_else(|| wrong(None))?;
            one(format_switch(provider, on).to_owned())
        }
        OptionKind::Whole { least, most } => {
            let number = whole(value).filter(|number| (least..=most).contains(number)).ok_or_else(|| wrong(None))?;
            one(number.to_string())
        }
        OptionKind::Size => {
            let size = size(value).ok_or_else(|| wrong(None))?;
            one(size.to_string())
        }
        OptionKind::Choice(names) => {
            let written = normalize(value.as_str().ok_or_else(|| wrong(None))?);
            let chosen = names.iter().find(|name| normalize(name) == written);
            one((*chosen.ok_or_else(|| wrong(suggestion(&written, names)))?).to_owned())
        }
        OptionKind::Text(_) => {
            let text = text(value).filter(|text| is_safe_text(text)).ok_or_else(|| wrong(None))?;
            one(text)
        }
        OptionKind::Shapes => one(shapes(value).ok_or_else(|| wrong(None))?),
        OptionKind::Folder => match (value, source) {
            (Json::Bool(true), _) => Ok(vec![(option.name, OptionValue::InCache)]),
            (Json::Bool(false), _) => Ok(Vec::new()),
            (Json::String(path), OptionSource::Operator) => one(path.clone()),
            (Json::String(_), OptionSource::File) => Err(operators(provider, name, "a folder", Some("`true`"))),
            _ => Err(wrong(None)),
        },
        OptionKind::File => match (value, source) {
            (Json::String(path), OptionSource::Operator) => one(path.clone()),
            (_, OptionSource::Operator) => Err(wrong(None)),
            (_, OptionSource::File) => Err(operators(provider, name, "a file", None)),
        },
        OptionKind::Flags => {
            let flags = whole(value).filter(|flags| (0..64).contains(flags)).ok_or_else(|| wrong(None))?;
            let values = tables::coreml_flags(flags);
            Ok(values.into_iter().map(|(name, value)| (name, OptionValue::Value(value.to_owned()))).collect())
        }
        // Switching off an unsupported option is allowed.
        OptionKind::Refused(_) if switch(value) == Some(false) => Ok(Vec::new()),
        OptionKind::Refused(reason) => Err(OptionError {
            in_name: true,
            message: format!("`{name}` of `{provider}` cannot be set: {reason}"),
            hint: None,
        }),
    }
}

/// The fault of a file that sets what only the operator may.
fn operators(provider: ExecutionProvider, name: &str, what: &str, instead: Option<&str>) -> OptionError {
    let instead = instead.map(|value| format!("{value} keeps it in gpux's cache; ")).unwrap_or_default();
    OptionError {
        in_name: false,
        message: format!("`{name}` of `{provider}` names {what}, which a gpux.yml may not"),
        hint: Some(format!("{instead}whoever runs it can pass `--provider-option {name}=PATH`")),
    }
}

fn format_switch(provider: ExecutionProvider, on: bool) -> &'static str {
    match (provider, on) {
        (ExecutionProvider::OpenVino, true) => "true",
        (ExecutionProvider::OpenVino, false) => "false",
        (_, true) => "1",
        (_, false) => "0",
    }
}

/// Also 0 and 1, and what Python prints: configurations in the wild have them.
fn switch(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(on) => Some(*on),
        Json::Number(number) => match number.as_u64()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        Json::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn whole(value: &Json) -> Option<i64> {
    match value {
        Json::Number(number) => number.as_i64(),
        Json::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn size(value: &Json) -> Option<u64> {
    let size = match value {
        Json::Number(number) => number.as_u64()?,
        Json::String(text) => text.parse::<Size>().ok()?.0,
        _ => return None,
    };
    (size > 0).then_some(size)
}

fn text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Whether a text holds nothing that could be more than it seems: no path, no quotes, no control
/// characters.
fn is_safe_text(text: &str) -> bool {
    let tame = |c: char| c.is_ascii_alphanumeric() || ".,:_-+*()[] ".contains(c);
    !text.is_empty() && text.len() <= LONGEST_TEXT && text.chars().all(tame)
}

/// `image:1x3x224x224,mask:1x224`, from that or from a mapping.
fn shapes(value: &Json) -> Option<String> {
    let entries: Vec<(String, Vec<u64>)> = match value {
        Json::Object(entries) => {
            let sizes = |shape: &Json| shape.as_array()?.iter().map(Json::as_u64).collect::<Option<Vec<_>>>();
            entries.iter().map(|(name, shape)| Some((name.clone(), sizes(shape)?))).collect::<Option<_>>()?
        }
        Json::String(text) if text.len() <= LONGEST_TEXT => {
            let entry = |entry: &str| {
                let (name, sizes) = entry.trim().rsplit_once(':')?;
                let sizes = sizes.split('x').map(|size| size.parse().ok()).collect::<Option<Vec<_>>>()?;
                Some((name.to_owned(), sizes))
            };
            text.split(',').map(entry).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let is_sound = |(name, sizes): &(String, Vec<u64>)| {
        let is_plain = !name.is_empty() && !name.contains([',', ':']) && !name.chars().any(char::is_control);
        is_plain && !sizes.is_empty() && sizes.len() <= 16 && sizes.iter().all(|size| (1..=1 << 31).contains(size))
    };
    if entries.is_empty() || !entries.iter().all(is_sound) {
        return None;
    }
    let entry = |(name, sizes): &(String, Vec<u64>)| {
        let sizes: Vec<_> = sizes.iter().map(u64::to_string).collect();
        format!("{name}:{}", sizes.join("x"))
    };
    Some(entries.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// A choice without what people write differently: case, underscores, the `k` of C++'s constants.
fn normalize(name: &str) -> String {
    let name = name.strip_prefix('k').filter(|rest| rest.starts_with(char::is_uppercase)).unwrap_or(name);
    name.replace(['_', '-', ' '], "").to_ascii_lowercase()
}

fn suggestion(written: &str, names: &[&str]) -> Option<String> {
    Some(format!("did you mean `{}`?", gpux_core::closest(written, names.iter().copied())?))
}

fn shown(value: &Json) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { format!("{}…", text.chars().take(60).collect::<String>()) } else { text }
}
