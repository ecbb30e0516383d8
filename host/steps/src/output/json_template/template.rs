//! Templates: JSON with `{{name}}` or `{{name.field[0]}}` in its texts.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::deadline::{Deadline, DeadlineExceeded};

/// Most names of values that a template may mention.
const MAX_NAMES: usize = 64;

/// The cost of copying or writing a JSON value, in bytes of text, about.
pub(super) const ELEMENTS_PER_VALUE: usize = 64;

/// A template that was read.
#[derive(Debug)]
pub(super) enum Template {
    Fixed(Json),
    /// a text that is one placeholder: whatever stands there
    Whole(Placeholder),
    /// a text around placeholders
    Text(Vec<Part>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Placeholder(Placeholder),
}

/// A placeholder: an input, and the path below it.
#[derive(Debug)]
pub(super) struct Placeholder {
    pub(super) input: usize,
    path: Vec<Key>,
    /// as written, for errors
    written: String,
}

#[derive(Debug)]
enum Key {
    Field(String),
    Index(usize),
}

/// What becomes of values that do not fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillRule {
    /// whether a missing part is an error, not `null`
    pub(super) missing_is_error: bool,
    /// whether a list or an object within a text becomes its JSON, and is no error
    pub(super) inserts_lists: bool,
}

/// Why a template cannot be filled.
#[derive(Debug)]
pub(super) enum FillError {
    /// this part is not there
    Missing(String),
    /// a list or an object stands within a text: what to write
    Structured(String),
    DeadlineExceeded(DeadlineExceeded),
}

impl From<DeadlineExceeded> for FillError {
    fn from(late: DeadlineExceeded) -> Self {
        Self::DeadlineExceeded(late)
    }
}

impl Placeholder {
    /// The value that stands here; `None` where the path leads nowhere.
    pub(super) fn find<'j>(&self, inputs: &'j [Arc<Json>]) -> Option<&'j Json> {
        self.path.iter().try_fold(inputs.get(self.input)?.as_ref(), |value, key| match key {
            Key::Field(name) => value.get(name),
            Key::Index(index) => value.get(index),
        })
    }

    pub(super) fn missing(&self) -> FillError {
        FillError::Missing(self.written.clone())
    }

    fn structured(&self, found: &Json) -> FillError {
        let name = &self.written;
        FillError::Structured(match found {
            Json::Array(items) => format!("`{name}` is a list of {}: write `{name}[0]` for its first", items.len()),
            Json::Object(fields) => {
                let first = fields.keys().next().map_or("field", String::as_str);
                format!("`{name}` is an object: write `{name}.{first}` for a part of it")
            }
            other => format!("`{name}` is {other}"),
        })
    }
}

/// Reads a template, and collects the names of the inputs that it mentions into `names`.
pub(super) fn read(json: Json, names: &mut Vec<String>) -> Result<Template, String> {
    Ok(match json {
        Json::String(text) => match parts(&text, names)? {
            None => Template::Fixed(Json::String(text)),
            Some(mut parts) => match (parts.len(), parts.pop()) {
                (1, Some(Part::Placeholder(place))) => Template::Whole(place),
                (_, last) => {
                    parts.extend(last);
                    Template::Text(parts)
                }
            },
        },
        Json::Array(items) => {
            Template::List(items.into_iter().map(|item| read(item, names)).collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            let field = |(name, value): (String, Json)| {
                if name.contains("{{") {
                    return Err(format!("`{name}`: placeholders stand in values, not in names of fields"));
                }
                Ok((name, read(value, names)?))
            };
            Template::Object(fields.into_iter().map(field).collect::<Result<_, String>>()?)
        }
        fixed => Template::Fixed(fixed),
    })
}

/// The parts of a text; `None` if there is nothing to fill in.
fn parts(text: &str, names: &mut Vec<String>) -> Result<Option<Vec<Part>>, String> {
    if !text.contains("{{") {
        return Ok(None);
    }
    let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        plain.push_str(before);
        // Written twice, the braces mean themselves.
        if let Some(after) = after.strip_prefix("{{") {
            plain.push_str("{{");
            rest = after;
            continue;
        }
        let (inside, after) = after.split_once("}}").ok_or_else(|| format!("`{text}`: `{{{{` has no `}}}}`"))?;
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(Part::Placeholder(place(inside.trim(), names)?));
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(Some(parts))
}

/// `name.field[0]`
fn place(written: &str, names: &mut Vec<String>) -> Result<Placeholder, String> {
    let refuse = |why: &str| Err(format!("`{{{{{written}}}}}`: {why}"));
    let end = written.find(['.', '[']).unwrap_or(written.len());
    let (name, mut rest) = written.split_at(end);
    let plain = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    if name.is_empty() || !name.chars().all(plain) {
        return refuse("a placeholder begins with the name of a value, of letters, digits, `_` and `-`");
    }
    let mut path = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            if end == 0 {
                return refuse("a field has no name");
            }
            path.push(Key::Field(after[..end].to_owned()));
            rest = &after[end..];
        } else {
            let inside = rest.strip_prefix('[').and_then(|after| after.split_once(']'));
            let Some((Ok(index), after)) = inside.map(|(index, after)| (index.trim().parse(), after)) else {
                return refuse("in brackets stands a number, as in `name[0]`");
            };
            path.push(Key::Index(index));
            rest = after;
        }
    }
    let input = names.iter().position(|known| known == name).unwrap_or(names.len());
    if input == names.len() {
        if input == MAX_NAMES {
            return refuse("there are more than 64 different names");
        }
        names.push(name.to_owned());
    }
    Ok(Placeholder { input, path, written: written.to_owned() })
}

impl Template {
    /// Calls `visit` with each placeholder, and whether it stands within a text.
    pub(super) fn placeholders<'t>(
        &'t self,
        visit: &mut impl FnMut(&'t Placeholder, bool) -> Result<(), DeadlineExceeded>,
    ) -> Result<(), DeadlineExceeded> {
        match self {
            Self::Fixed(_) => Ok(()),
            Self::Whole(place) => visit(place, false),
            Self::Text(parts) => parts.iter().try_for_each(|part| match part {
                Part::Placeholder(place) => visit(place, true),
                Part::Text(_) => Ok(()),
            }),
            Self::List(items) => items.iter().try_for_each(|item| item.placeholders(visit)),
            Self::Object(fields) => fields.iter().try_for_each(|(_, value)| value.placeholders(visit)),
        }
    }

    /// How many levels deep the filled template may be, where the `inputs` are so deep.
    pub(super) fn depth(&self, inputs: &[usize]) -> usize {
        match self {
            Self::Fixed(json) => depth(json),
            // Each key of its path is a level less.
            Self::Whole(place) => inputs.get(place.input).map_or(0, |whole| whole.saturating_sub(place.path.len())),
            Self::Text(_) => 0,
            Self::List(items) => 1 + items.iter().map(|item| item.depth(inputs)).max().unwrap_or(0),
            Self::Object(fields) => 1 + fields.iter().map(|(_, value)| value.depth(inputs)).max().unwrap_or(0),
        }
    }

    /// Renders the template with values from `inputs`; a missing one is `null`, or an error if `strict`.
    pub(super) fn fill(&self, inputs: &[Arc<Json>], rule: FillRule, deadline: &Deadline) -> Result<Json, FillError> {
        let found = |place: &Placeholder| match place.find(inputs) {
            None if rule.missing_is_error => Err(place.missing()),
            found => Ok(found.unwrap_or(&Json::Null)),
        };
        Ok(match self {
            Self::Fixed(json) => json.clone(),
            Self::Whole(place) => copy(found(place)?, deadline)?,
            Self::Text(parts) => {
                let mut text = Vec::new();
                for part in parts {
                    match part {
                        Part::Text(plain) => text.extend_from_slice(plain.as_bytes()),
                        Part::Placeholder(place) => match found(place)? {
                            Json::String(inserted) => text.extend_from_slice(inserted.as_bytes()),
                            other @ (Json::Array(_) | Json::Object(_)) if !rule.inserts_lists => {
                                return Err(place.structured(other));
                            }
                            // Only the clock makes writing to memory fail.
                            other => {
                                serde_json::to_writer(Writer { text: &mut text, deadline }, other)
                                    .map_err(|_| DeadlineExceeded)?;
                            }
                        },
                    }
                    deadline.check_after(text.len())?;
                }
                Json::String(String::from_utf8(text).unwrap_or_default())
            }
            Self::List(items) => {
                items.iter().map(|item| item.fill(inputs, rule, deadline)).collect::<Result<_, _>>()?
            }
            Self::Object(fields) => {
                let filled = fields
                    .iter()
                    .map(|(name, value)| value.fill(inputs, rule, deadline).map(|value| (name.clone(), value)));
                Json::Object(filled.collect::<Result<Map<_, _>, _>>()?)
            }
        })
    }
}

/// A copy, in the request's time.
fn copy(json: &Json, deadline: &Deadline) -> Result<Json, DeadlineExceeded> {
    deadline.check_after(ELEMENTS_PER_VALUE)?;
    Ok(match json {
        Json::Array(items) => items.iter().map(|item| copy(item, deadline)).collect::<Result<_, _>>()?,
        Json::Object(fields) => {
            let copied = fields.iter().map(|(name, value)| Ok((name.clone(), copy(value, deadline)?)));
            Json::Object(copied.collect::<Result<Map<_, _>, DeadlineExceeded>>()?)
        }
        leaf => leaf.clone(),
    })
}

/// Writes to memory until the request's time is over.
struct Writer<'w> {
    text: &'w mut Vec<u8>,
    deadline: &'w Deadline,
}

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // serde_json writes a value in few pieces.
        self.deadline.check_after(ELEMENTS_PER_VALUE / 4 + bytes.len())?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many lists and objects lie within each other in `json`.
fn depth(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reference::random;

    /// JSON of a random shape, whose texts are among these.
    fn shape(random: &mut impl FnMut(usize) -> usize, levels: usize, texts: &[&str]) -> Json {
        let items = random(4);
        match random(if levels == 0 { 2 } else { 4 }) {
            0 => json!(1),
            1 => json!(texts[random(texts.len())]),
            2 => (0..items).map(|_| shape(random, levels - 1, texts)).collect(),
            _ => {
                let fields = ["b", "c", "d"].into_iter().take(items);
                Json::Object(fields.map(|name| (name.to_owned(), shape(random, levels - 1, texts))).collect())
            }
        }
    }

    #[test]
    fn computes_depth_before_filling() {
        let mut random = random();
        let mut tight = 0;
        for _ in 0..3000 {
            let texts = ["{{a}}", "{{a.b}}", "{{a.b[0]}}", "{{a[1]}}", "{{c}}", "plain", "in {{a}} text"];
            let template = shape(&mut random, 4, &texts);
            let inputs = [shape(&mut random, 5, &["x"]), shape(&mut random, 3, &["x"])];
            let mut names = vec!["a".to_owned(), "c".to_owned()];
            let template = read(template, &mut names).unwrap();
            let claimed = template.depth(&inputs.each_ref().map(depth));
            let filled = depth(&template.fill(&inputs.clone().map(Arc::new), TOLERANT, &Deadline::default()).unwrap());
            assert!(filled <= claimed, "{template:?} {inputs:?}: {filled} levels, not {claimed}");
            tight += usize::from(filled == claimed);
        }
        assert!(tight > 1000, "{tight}: what is claimed has little to do with what is filled in");
    }

    const TOLERANT: FillRule = FillRule { missing_is_error: false, inserts_lists: true };
    const STRICT: FillRule = FillRule { missing_is_error: true, inserts_lists: false };

    fn fill(template: Json, inputs: &[Json]) -> Json {
        let inputs: Vec<_> = inputs.iter().cloned().map(Arc::new).collect();
        read(template, &mut Vec::new()).unwrap().fill(&inputs, TOLERANT, &Deadline::default()).unwrap()
    }

    #[test]
    fn placeholders_keep_their_type_or_become_text() {
        let inputs = [json!({"label": "cat", "at": [1, 2.5, null]})];
        let template =
            json!({"whole": "{{ a.at }}", "deep": "{{a.at[1]}}", "text": "a {{a.label}} at {{a.at}}", "n": 3});
        let expected = json!({"whole": [1, 2.5, null], "deep": 2.5, "text": "a cat at [1,2.5,null]", "n": 3});
        assert_eq!(fill(template, &inputs), expected);
        assert_eq!(fill(json!(["{{a.no[7].more}}", "{{{{a}} {{a.label}}"]), &inputs), json!([null, "{{a}} cat"]));
        assert_eq!(fill(json!("{{{{a}}"), &inputs), json!("{{a}}"));
        assert_eq!(
            fill(json!("{{a.at}}!"), &[json!({"at": "{{b}}"})]),
            json!("{{b}}!"),
            "what is filled in is not read"
        );
    }

    #[test]
    fn rejects_lists_within_texts() {
        let inputs = [Arc::new(json!({"at": [0.5], "best": {"label": "cat"}}))];
        let why = |template: &str| match read(json!(template), &mut Vec::new()).unwrap().fill(
            &inputs,
            STRICT,
            &Deadline::default(),
        ) {
            Err(FillError::Structured(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why("at {{a.at}}"), "`a.at` is a list of 1: write `a.at[0]` for its first");
        assert_eq!(why("a {{a.best}}"), "`a.best` is an object: write `a.best.label` for a part of it");
    }

    #[test]
    fn names_missing_parts() {
        let template = read(json!("{{a.b[0]}}"), &mut Vec::new()).unwrap();
        let missing = template.fill(&[Arc::new(json!({"b": []}))], STRICT, &Deadline::default()).unwrap_err();
        assert!(matches!(missing, FillError::Missing(part) if part == "a.b[0]"));
    }

    #[test]
    fn collects_names_once() {
        let mut names = Vec::new();
        read(json!(["{{b}} {{a.x}}", {"c": "{{a}}"}]), &mut names).unwrap();
        assert_eq!(names, ["b", "a"]);
    }

    #[test]
    fn rejects_malformed_templates() {
        for (template, word) in [
            (json!("{{a"), "has no"),
            (json!("{{}}"), "begins with the name"),
            (json!("{{a b}}"), "begins with the name"),
            (json!("{{a.}}"), "no name"),
            (json!("{{a..b}}"), "no name"),
            (json!("{{a[b]}}"), "stands a number"),
            (json!("{{a[-1]}}"), "stands a number"),
            (json!("{{a[0}}"), "stands a number"),
            (json!("{{a[0]b}}"), "stands a number"),
            (json!({"{{a}}": 1}), "not in names"),
        ] {
            let why = read(template.clone(), &mut Vec::new()).unwrap_err();
            assert!(why.contains(word), "{template}: {why}");
        }
        let many: Vec<_> = (0..65).map(|number| format!("{{{{a{number}}}}}")).collect();
        assert!(read(json!(many), &mut Vec::new()).unwrap_err().contains("more than 64"));
    }

    #[test]
    fn random_templates_never_panic() {
        let mut random = random();
        let pieces = ["{{", "}}", "a", ".", "[", "]", "0", " ", "é", "{", "}", "😀", "-"];
        for _ in 0..5000 {
            let text: String = (0..random(12)).map(|_| pieces[random(pieces.len())]).collect();
            if let Ok(template) = read(json!(text), &mut Vec::new()) {
                let inputs = [json!({"a": [1]}), json!("x")].map(Arc::new);
                template.fill(&inputs, TOLERANT, &Deadline::default()).unwrap();
            }
        }
    }
}
