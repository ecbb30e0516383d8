//! A YAML value that knows where each of its parts stands in the file.

use std::fmt;
use std::sync::Arc;

use super::source_file::Span;

/// A value and the bytes of the file that it was read from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Spanned<T> {
    /// the value
    pub value: T,
    /// its place
    pub span: Span,
}

impl<T> Spanned<T> {
    /// `value`, read from `span`.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

impl<T: fmt::Display> fmt::Display for Spanned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A number, and the text it was written as (`1.0` stays `1.0`).
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// the value
    pub value: serde_json::Number,
    /// the text in the file
    pub text: Arc<str>,
}

/// A key and its value.
pub type Entry = (Spanned<Arc<str>>, Node);

/// The content of a [`Node`].
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Content {
    /// nothing
    #[default]
    Null,
    /// true or false
    Bool(bool),
    /// an integer or a finite float
    Number(Number),
    /// text
    String(Arc<str>),
    /// a list
    Sequence(Vec<Node>),
    /// keys in the order of the file, each once
    Mapping(Vec<Entry>),
}

/// A YAML value with its place. Under an alias, the node itself stands at the alias and its
/// parts at their definition.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Node {
    /// the value
    pub content: Content,
    /// its place
    pub span: Span,
}

impl Node {
    /// A node at `span`.
    pub fn new(content: Content, span: Span) -> Self {
        Self { content, span }
    }

    /// A text node at `span`.
    pub fn text(text: impl Into<Arc<str>>, span: Span) -> Self {
        Self::new(Content::String(text.into()), span)
    }

    /// A mapping at `span`, each key at its value's place.
    pub fn mapping(entries: impl IntoIterator<Item = (&'static str, Node)>, span: Span) -> Self {
        let entries = entries.into_iter().map(|(key, node)| (Spanned::new(key.into(), node.span.clone()), node));
        Self::new(Content::Mapping(entries.collect()), span)
    }

    /// The text, if this is text.
    pub fn as_str(&self) -> Option<&str> {
        if let Content::String(text) = &self.content { Some(text) } else { None }
    }

    /// The entries, if this is a mapping.
    pub fn entries(&self) -> Option<&[Entry]> {
        if let Content::Mapping(entries) = &self.content { Some(entries) } else { None }
    }

    /// The items, if this is a list.
    pub fn items(&self) -> Option<&[Node]> {
        if let Content::Sequence(items) = &self.content { Some(items) } else { None }
    }

    /// Whether this is `null`, written or left out.
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// The key and the value of `key`, if this is a mapping that has it.
    pub fn entry(&self, key: &str) -> Option<(&Spanned<Arc<str>>, &Node)> {
        self.entries()?.iter().find(|(name, _)| &*name.value == key).map(|(name, node)| (name, node))
    }

    /// The value of `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// The same value without places.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.content {
            Content::Null => serde_json::Value::Null,
            Content::Bool(value) => (*value).into(),
            Content::Number(number) => serde_json::Value::Number(number.value.clone()),
            Content::String(text) => (**text).into(),
            Content::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Content::Mapping(entries) => {
                let fields = entries.iter().map(|(key, node)| (key.value.to_string(), node.to_json()));
                serde_json::Value::Object(fields.collect())
            }
        }
    }

    /// The kind of this value, in words: `text`, `a whole number`, `a list`.
    pub(super) fn kind_in_words(&self) -> &'static str {
        match &self.content {
            Content::Null => "empty",
            Content::Bool(_) => "true or false",
            Content::Number(number) if number.value.is_f64() => "a number with a fraction",
            Content::Number(_) => "a number",
            Content::String(_) => "text",
            Content::Sequence(_) => "a list",
            Content::Mapping(_) => "a mapping",
        }
    }
}
