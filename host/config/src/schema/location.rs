//! From the paths in a validation error to the parts of the file and of the schema.

use jsonschema::paths::{Location, LocationSegment};
use serde_json::Value;

use super::super::node::Node;
use super::super::source_file::Span;

/// The checked tree with its schema.
pub(super) struct SchemaContext<'c> {
    pub(super) root: &'c Node,
    /// the name of the root
    pub(super) name: &'c str,
    pub(super) schema: &'c Value,
}

/// A part of the checked value.
pub(super) struct SchemaLocation<'c> {
    pub(super) node: &'c Node,
    /// its key, if it is the value of one
    key: Option<Span>,
    /// its name: `size[1]`
    pub(super) name: String,
    pub(super) is_root: bool,
}

impl SchemaLocation<'_> {
    /// The span for a diagnostic about a missing part: the key of this value.
    pub(super) fn key_span(&self) -> Span {
        let first = || self.node.entries().and_then(|entries| entries.first()).map(|(key, _)| key.span.clone());
        self.key.clone().or_else(first).unwrap_or_else(|| self.node.span.clone())
    }

    /// The span for a diagnostic about the value: its key, if the value takes several lines or none.
    pub(super) fn value_span(&self) -> Span {
        let collection = self.node.entries().is_some() || self.node.items().is_some();
        if collection || self.node.span.is_empty() { self.key_or_value_span() } else { self.node.span.clone() }
    }

    fn key_or_value_span(&self) -> Span {
        self.key.clone().unwrap_or_else(|| self.node.span.clone())
    }
}

impl<'c> SchemaContext<'c> {
    pub(super) fn locate(&self, path: &Location) -> SchemaLocation<'c> {
        let mut place = SchemaLocation { node: self.root, key: None, name: self.name.to_owned(), is_root: true };
        for segment in path.segments() {
            let segment = segment.to_string();
            if let Some((key, node)) = place.node.entry(&segment) {
                place = SchemaLocation { node, key: Some(key.span.clone()), name: segment, is_root: false };
            } else if let Some(item) = segment.parse().ok().and_then(|at: usize| place.node.items()?.get(at)) {
                place = SchemaLocation {
                    node: item,
                    key: None,
                    name: format!("{}[{segment}]", place.name),
                    is_root: false,
                };
            }
        }
        place
    }

    /// The schema object that holds the keyword at `path`, references followed.
    pub(super) fn keyword_schema(&self, path: &Location) -> Option<&'c Value> {
        let segments: Vec<_> = path.segments().collect();
        let (_keyword, parents) = segments.split_last()?;
        parents
            .iter()
            .try_fold(self.schema, |schema, segment| step(self.resolve(schema), segment))
            .map(|schema| self.resolve(schema))
    }

    /// Follows `$ref`; the bounds have made sure that this ends.
    pub(super) fn resolve(&self, schema: &'c Value) -> &'c Value {
        let mut schema = schema;
        while let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            match self.schema.pointer(target.trim_start_matches('#')) {
                Some(next) => schema = next,
                None => return schema,
            }
        }
        schema
    }

    /// The schema's description of the value that broke the keyword at `path`: the nearest
    /// description that is about this value, not about the one that contains it. One sentence.
    pub(super) fn nearest_description(&self, path: &Location) -> Option<String> {
        let segments: Vec<_> = path.segments().collect();
        for end in (1..segments.len()).rev() {
            let parents = &segments[..end];
            let schema = parents.iter().try_fold(self.schema, |schema, segment| step(self.resolve(schema), segment))?;
            if let Some(description) = self.description(schema) {
                return Some(description);
            }
            let last = parents.last().map(ToString::to_string);
            let container = parents.len().checked_sub(2).and_then(|at| parents.get(at)).map(ToString::to_string);
            let ends_here = matches!(last.as_deref(), Some("items" | "additionalProperties"));
            if ends_here || matches!(container.as_deref(), Some("properties" | "prefixItems" | "$defs")) {
                return None;
            }
        }
        None
    }

    /// The `description` of a schema or of its `$ref` target: first sentence only.
    pub(super) fn description(&self, schema: &'c Value) -> Option<String> {
        let own = schema.get("description").or_else(|| self.resolve(schema).get("description"))?;
        let text = own.as_str()?.split("\n\n").next()?.replace('\n', " ");
        let text = text.trim().trim_end_matches('.');
        (!text.is_empty()).then(|| text.chars().take(200).collect())
    }
}

/// One segment of a path further into a schema.
fn step<'c>(schema: &'c Value, segment: &LocationSegment<'_>) -> Option<&'c Value> {
    match (schema, segment.to_string()) {
        (Value::Array(items), index) => items.get(index.parse::<usize>().ok()?),
        (schema, keyword) if keyword == "$ref" => Some(schema),
        (schema, key) => schema.get(key),
    }
}
