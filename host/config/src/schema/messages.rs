//! A validation error in words for people.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::super::diagnostic::Diagnostic;
use super::super::node::{Content, Node};
use super::location::{SchemaContext, SchemaLocation};
use gpux_core::{Size, TimeSpan};
use gpux_core::{closest, list};

/// Adds what `error` means to `out`: usually one diagnostic, one for each key of several unknown ones.
pub(super) fn describe(context: &SchemaContext<'_>, error: &ValidationError<'_>, out: &mut Vec<Diagnostic>) {
    let place = context.locate(error.instance_path());
    let owner = context.keyword_schema(error.schema_path());
    let name = &place.name;
    let about =
        || context.nearest_description(error.schema_path()).map(|text| format!("`{name}`: {}", uncapitalized(&text)));
    let mut push = |diagnostic: Diagnostic| {
        let hint = diagnostic.hint.clone().or_else(about);
        out.push(Diagnostic { hint, ..diagnostic });
    };
    let range = |message: String| Diagnostic::new("range", place.value_span(), message);
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            for key in unexpected {
                push(unknown_key(&place, key, owner));
            }
        }
        Kind::Required { property } => push(missing_key(context, &place, property, owner)),
        Kind::Type { kind } => push(wrong_type(&place, &types(kind), owner)),
        Kind::Enum { options } => push(unknown_choice(&place, &quoted_names(options.as_array().into_iter().flatten()))),
        Kind::Constant { expected_value } => push(unknown_choice(&place, &quoted_names([&**expected_value]))),
        Kind::AnyOf { context: branches } | Kind::OneOfNotValid { context: branches } => {
            union(context, error, branches, out);
        }
        Kind::Format { format } => push(wrong_format(&place, format)),
        Kind::Minimum { limit } => push(range(format!("`{name}` must be at least {limit}"))),
        Kind::Maximum { limit } => push(range(format!("`{name}` must be at most {limit}"))),
        Kind::ExclusiveMinimum { limit } => push(range(format!("`{name}` must be more than {limit}"))),
        Kind::ExclusiveMaximum { limit } => push(range(format!("`{name}` must be less than {limit}"))),
        Kind::MultipleOf { multiple_of } => push(range(format!("`{name}` must be a multiple of {multiple_of}"))),
        Kind::MinItems { limit } => push(range(format!("`{name}` needs at least {}", count(*limit, "item")))),
        Kind::MaxItems { limit } => push(range(format!("`{name}` takes at most {}", count(*limit, "item")))),
        Kind::AdditionalItems { limit } => {
            push(range(format!("`{name}` takes at most {}", count(*limit as u64, "item"))));
        }
        Kind::MinProperties { limit } => push(range(format!("`{name}` needs at least {}", count(*limit, "key")))),
        Kind::MaxProperties { limit } => push(range(format!("`{name}` takes at most {}", count(*limit, "key")))),
        Kind::MinLength { limit: 1 } => push(range(format!("`{name}` must not be empty"))),
        Kind::MinLength { limit } => push(range(format!("`{name}` needs at least {}", count(*limit, "character")))),
        Kind::MaxLength { limit } => push(range(format!("`{name}` takes at most {}", count(*limit, "character")))),
        Kind::UniqueItems => push(range(format!("the items of `{name}` must differ from each other"))),
        Kind::Pattern { pattern } => {
            push(Diagnostic::new(
                "pattern",
                place.value_span(),
                format!("`{name}` must match `{}`", abbreviate(pattern)),
            ));
        }
        Kind::FalseSchema => {
            push(Diagnostic::new("unknown-key", place.key_span(), format!("`{name}` is not allowed here")));
        }
        Kind::OneOfMultipleValid { .. } => {
            push(Diagnostic::new(
                "ambiguous",
                place.value_span(),
                format!("`{name}` can be read in more than one way"),
            ));
        }
        Kind::PropertyNames { error } => {
            let key = error.instance().as_str().unwrap_or_default();
            let span = place.node.entry(key).map_or_else(|| place.key_span(), |(key, _)| key.span.clone());
            push(Diagnostic::new("key", span, format!("`{}` is not a name that `{name}` can have", abbreviate(key))));
        }
        Kind::Not { .. } => {
            push(Diagnostic::new("value", place.value_span(), format!("`{name}` must not have this value")));
        }
        Kind::Contains => {
            push(Diagnostic::new("value", place.value_span(), format!("`{name}` lacks an item that it needs")));
        }
        other => {
            let message = format!("`{name}` breaks the rule `{}`", abbreviate(other.keyword()));
            push(Diagnostic::new("value", place.value_span(), message));
        }
    }
}

fn unknown_key(place: &SchemaLocation<'_>, key: &str, owner: Option<&Value>) -> Diagnostic {
    let span = place.node.entry(key).map_or_else(|| place.key_span(), |(key, _)| key.span.clone());
    let known: Vec<&str> = owner
        .and_then(|owner| owner.get("properties")?.as_object())
        .into_iter()
        .flat_map(|known| known.keys().map(String::as_str))
        .collect();
    let present = |name: &&str| place.node.get(name).is_none();
    let message = if place.is_root && place.name.is_empty() {
        format!("unknown key `{}`", abbreviate(key))
    } else {
        format!("unknown key `{}` in `{}`", abbreviate(key), place.name)
    };
    let diagnostic = Diagnostic::new("unknown-key", span, message);
    let free: Vec<&str> = known.iter().copied().filter(present).collect();
    match meant_key(key, &free) {
        Some(meant) => diagnostic.hint(format!("did you mean `{meant}`?")),
        None if free.is_empty() && known.is_empty() => diagnostic.hint("nothing can be set here; remove it"),
        None if free.is_empty() => diagnostic.hint("remove it; every key that can be set here is there already"),
        None => diagnostic.hint(format!("these can be set here: {}", list(&free, "and"))),
    }
}

/// What other programs call a key, and what gpux does.
const SYNONYMS: [(&str, &str); 3] = [("classes", "labels"), ("stages", "pipeline"), ("steps", "pipeline")];

/// The one of these keys that was meant.
pub(crate) fn meant_key<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == written).map(|(_, name)| *name);
    let synonym = synonym.and_then(|name| known.iter().copied().find(|known| *known == name));
    synonym.or_else(|| closest(written, known.iter().copied()))
}

fn missing_key<'c>(
    context: &SchemaContext<'c>,
    place: &SchemaLocation<'_>,
    property: &Value,
    owner: Option<&'c Value>,
) -> Diagnostic {
    let key = property.as_str().unwrap_or_default();
    let whole = place.is_root && place.name.is_empty();
    let message =
        if whole { format!("the key `{key}` is missing") } else { format!("`{}` lacks the key `{key}`", place.name) };
    let about = owner.and_then(|owner| context.description(owner.get("properties")?.get(key)?));
    let about = about.map(|text| format!(": {}", uncapitalized(&text))).unwrap_or_default();
    Diagnostic::new("missing-key", place.key_span(), message).hint(format!("add `{key}: …`{about}"))
}

fn wrong_type(place: &SchemaLocation<'_>, expected: &[JsonType], owner: Option<&Value>) -> Diagnostic {
    let format = owner.and_then(|owner| owner.get("format")?.as_str());
    let wanted = match format {
        Some("gpux-size") => "a size, such as `2GB`".to_owned(),
        Some("gpux-duration") => "a duration, such as `500ms` or `2s`".to_owned(),
        _ => types_in_words(expected),
    };
    let node = place.node;
    let diagnostic = Diagnostic::new("type", place.value_span(), format!("`{}` takes {wanted}", place.name))
        .label(actual_kind(node));
    let takes = |wanted: JsonType| expected.contains(&wanted);
    match &node.content {
        Content::String(text) if takes(JsonType::Boolean) => match text.to_lowercase().as_str() {
            "yes" | "on" | "y" | "true" => diagnostic.hint("write `true`"),
            "no" | "off" | "n" | "false" => diagnostic.hint("write `false`"),
            _ => diagnostic.hint("write `true` or `false`"),
        },
        Content::String(text)
            if (takes(JsonType::Integer) || takes(JsonType::Number))
                && text.trim().parse::<f64>().is_ok_and(f64::is_finite) =>
        {
            diagnostic.hint("remove the quotes")
        }
        Content::Null => diagnostic.hint(format!("write a value after `{}:`, or remove the line", place.name)),
        Content::Number(_) | Content::Bool(_)
            if expected.iter().all(|kind| matches!(kind, JsonType::String | JsonType::Null)) =>
        {
            diagnostic.hint("put it in quotes if it is meant as text")
        }
        Content::Mapping(_) | Content::Sequence(_) => diagnostic,
        _ if takes(JsonType::Array) => diagnostic.hint("write a list: `[first, second]`"),
        _ => diagnostic,
    }
}

fn actual_kind(node: &Node) -> String {
    match &node.content {
        Content::Bool(value) => format!("this is `{value}`"),
        Content::Null => "this is empty".to_owned(),
        _ => format!("this is {}", node.kind_in_words()),
    }
}

fn unknown_choice(place: &SchemaLocation<'_>, options: &[String]) -> Diagnostic {
    let written = match &place.node.content {
        Content::String(text) => text.to_string(),
        Content::Sequence(_) | Content::Mapping(_) => String::new(),
        _ => place.node.to_json().to_string(),
    };
    let message = match &place.node.content {
        Content::Sequence(_) | Content::Mapping(_) => {
            format!("`{}` cannot be {}", place.name, place.node.kind_in_words())
        }
        Content::Null => format!("`{}` cannot be empty", place.name),
        _ => format!("`{}` cannot be `{}`", place.name, abbreviate(&written)),
    };
    let all = format!("it is {}", list(options, "or"));
    let hint = match closest(&written, options.iter().map(String::as_str)) {
        Some(meant) if options.len() > 12 => format!("did you mean `{meant}`?"),
        Some(meant) => format!("did you mean `{meant}`? {all}"),
        None => all,
    };
    Diagnostic::new("value", place.value_span(), message).hint(hint)
}

fn wrong_format(place: &SchemaLocation<'_>, format: &str) -> Diagnostic {
    let text = place.node.as_str().unwrap_or_default();
    let unit = match format {
        "gpux-size" => text.parse::<Size>().err(),
        "gpux-duration" => text.parse::<TimeSpan>().err(),
        _ => None,
    };
    match unit {
        Some(error) => {
            Diagnostic::new("value", place.value_span(), format!("`{}`: {error}", place.name)).hint(error.hint())
        }
        None => Diagnostic::new(
            "value",
            place.value_span(),
            format!("`{}` is not a valid {}", place.name, abbreviate(format)),
        ),
    }
}

/// The value fits no branch of a union: reports the errors of the branch it is nearest to.
fn union(
    context: &SchemaContext<'_>,
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    out: &mut Vec<Diagnostic>,
) {
    let here = error.instance_path();
    let about_all_of_it = |error: &&ValidationError<'_>| error.instance_path() == here;
    let another_type = |branch: &&Vec<ValidationError<'static>>| {
        branch.iter().filter(about_all_of_it).any(|error| matches!(error.kind(), Kind::Type { .. }))
    };
    let another_value = |branch: &&Vec<ValidationError<'static>>| {
        branch
            .iter()
            .filter(about_all_of_it)
            .any(|error| matches!(error.kind(), Kind::Enum { .. } | Kind::Constant { .. }))
    };

    let place = context.locate(here);
    let right_type: Vec<_> = branches.iter().filter(|branch| !another_type(branch)).collect();
    if right_type.is_empty() {
        // Names of another type: the names say more than the type.
        let mistyped = || {
            branches.iter().flatten().filter(about_all_of_it).filter(|error| matches!(error.kind(), Kind::Type { .. }))
        };
        let constants: Vec<_> =
            mistyped().filter_map(|error| context.keyword_schema(error.schema_path())?.get("const")).collect();
        if !constants.is_empty() && constants.len() == mistyped().count() {
            out.push(unknown_choice(&place, &quoted_names(constants)));
            return;
        }

        let mut expected: Vec<JsonType> = Vec::new();
        for error in branches.iter().flatten().filter(about_all_of_it) {
            if let Kind::Type { kind } = error.kind() {
                expected.extend(types(kind).into_iter().filter(|kind| !expected.contains(kind)).collect::<Vec<_>>());
            }
        }
        out.push(wrong_type(&place, &expected, None));
        return;
    }

    let free: Vec<_> = right_type.iter().filter(|branch| !another_value(branch)).copied().collect();
    if free.is_empty() {
        let mut options = Vec::new();
        for error in right_type.iter().copied().flatten() {
            match error.kind() {
                Kind::Enum { options: more } => options.extend(quoted_names(more.as_array().into_iter().flatten())),
                Kind::Constant { expected_value } => options.extend(quoted_names([&**expected_value])),
                _ => {}
            }
        }
        out.push(unknown_choice(&place, &options));
        return;
    }

    // The fewest mistakes; among equals, those furthest inside, because the outside fitted.
    let depth = |branch: &Vec<ValidationError<'static>>| {
        branch.iter().map(|error| error.instance_path().segments().count()).min().unwrap_or(0)
    };
    let best = free.into_iter().min_by_key(|branch| (branch.len(), std::cmp::Reverse(depth(branch))));
    for error in best.into_iter().flatten() {
        describe(context, error, out);
    }
}

fn types(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(kind) => vec![*kind],
        TypeKind::Multiple(kinds) => kinds.iter().collect(),
    }
}

fn types_in_words(types: &[JsonType]) -> String {
    let words: Vec<_> = types
        .iter()
        .filter_map(|kind| match kind {
            JsonType::Null => None,
            JsonType::Boolean => Some("true or false"),
            JsonType::Integer => Some("a whole number"),
            JsonType::Number => Some("a number"),
            JsonType::String => Some("text"),
            JsonType::Array => Some("a list"),
            JsonType::Object => Some("a mapping (`key: value` lines)"),
        })
        .collect();
    match words.split_last() {
        None => "no value".to_owned(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

fn quoted_names<'v>(values: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    let values = values.into_iter().filter(|value| !value.is_null());
    values
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        .map(|text| abbreviate(&text))
        .collect()
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// At most 60 characters, on one line: names come from strangers.
fn abbreviate(text: &str) -> String {
    let mut shown: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}

fn uncapitalized(text: &str) -> String {
    let mut chars = text.chars();
    let second_is_lower = text.chars().nth(1).is_none_or(|c| !c.is_uppercase());
    match chars.next() {
        Some(first) if second_is_lower => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}
