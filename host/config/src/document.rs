//! YAML text → a tree of [`Node`]s, within a budget.
//!
//! The tree is built from the parser's events rather than through serde, because that keeps the
//! full span of every key and value, the text of every number, and goes on after a duplicate key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_yaml::granit_parser::{Event, Parser, ScalarStyle, Tag};

use super::diagnostic::Diagnostic;
use super::node::{Content, Entry, Node, Spanned};
use super::scalar;
use super::source_file::{SourceFile, Span};
use super::yaml_error;

/// Bytes of a file; a real gpux.yml has a few thousand.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;
/// Values in a file after its aliases are expanded.
const MAX_NODES: usize = 50_000;
/// Bytes of all keys and scalars after the aliases are expanded.
const MAX_SCALAR_BYTES: usize = 4 << 20;
/// Mappings and lists inside each other. All that walks the tree recurses at most this deep.
pub(super) const MAX_DEPTH: usize = 64;

/// A parsed file: its text and the tree of its values.
#[derive(Clone, Debug)]
pub struct Document {
    /// the file
    pub source: SourceFile,
    /// the value of the file: a mapping
    pub root: Node,
}

/// A kind of file, for messages: its name and its first keys.
#[derive(Clone, Copy, Debug)]
pub struct FileKind {
    /// its name: `gpux.yml`
    pub name: &'static str,
    /// the hint for files of other kinds: "start with `name:` …"
    pub start: &'static str,
}

impl FileKind {
    /// The file that describes a pipeline.
    pub const PIPELINE: Self =
        Self { name: "gpux.yml", start: "start with `name:`, `version:` and `model: {source: ./model.onnx}`" };
}

/// Parses a file: the tree as far as it could be read, and the mistakes.
pub(super) fn parse(source: &SourceFile, kind: FileKind) -> (Option<Node>, Vec<Diagnostic>) {
    let text = &source.text;
    if text.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes; at most {MAX_FILE_BYTES} are read", text.len());
        let hint = "keep data (labels, vocabularies, tensors) in files of their own";
        return (None, vec![Diagnostic::new("too-large", 0..0, message).hint(hint)]);
    }
    let mut builder = Builder::new(text, kind);
    if let Err(fatal) = builder.run() {
        builder.diagnostics.push(fatal);
        return (None, builder.diagnostics);
    }
    let Some(root) = builder.root else {
        return (None, vec![Diagnostic::new("empty", 0..0, "the file is empty").hint(kind.start)]);
    };
    if root.entries().is_none() {
        let message =
            format!("a {} is a mapping (`key: value` lines), but this file is {}", kind.name, root.kind_in_words());
        let diagnostic = Diagnostic::new("not-a-mapping", first_line(&root.span, text), message);
        builder.diagnostics.push(diagnostic.hint(kind.start));
        return (None, builder.diagnostics);
    }
    (Some(root), builder.diagnostics)
}

fn first_line(span: &Span, text: &str) -> Span {
    let covered = text.get(span.clone()).unwrap_or_default();
    span.start..span.start + covered.lines().next().unwrap_or_default().len()
}

/// The size of a finished node, which each alias of it adds again.
#[derive(Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl Cost {
    fn contain(&mut self, child: Self) {
        self.nodes += child.nodes;
        self.bytes += child.bytes;
        self.depth = self.depth.max(child.depth + 1);
    }
}

enum CollectionKind {
    Sequence(Vec<Node>),
    Mapping { entries: Vec<Entry>, key: Option<Key>, seen: HashMap<Arc<str>, usize>, merges: Vec<Node> },
}

enum Key {
    Name(Spanned<Arc<str>>),
    Merge,
    /// a list or a mapping as a key; its value is dropped
    Unsupported,
}

struct OpenCollection {
    kind: CollectionKind,
    start: usize,
    anchor: usize,
    cost: Cost,
}

struct Builder<'a> {
    text: &'a str,
    kind: FileKind,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, (Node, Cost)>,
    root: Option<Node>,
    documents: usize,
    total: Cost,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, kind: FileKind) -> Self {
        Self {
            text,
            kind,
            open: Vec::new(),
            anchors: HashMap::new(),
            root: None,
            documents: 0,
            total: Cost::default(),
            diagnostics: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), Diagnostic> {
        let text = self.text;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| yaml_error::diagnostic(&error, text))?;
            let span = self.range(span.byte_range());
            match event {
                Event::DocumentStart(..) => {
                    self.documents += 1;
                    if self.documents > 1 {
                        let hint = format!(
                            "a {} is one document; move the rest into a file of its own and remove the `---`",
                            self.kind.name
                        );
                        return Err(
                            Diagnostic::new("several-documents", span, "a second YAML document begins here").hint(hint)
                        );
                    }
                }
                Event::Scalar(value, style, anchor, tag) => {
                    let content = self.scalar(&value, style, tag.as_deref(), &span);
                    let cost = Cost { nodes: 1, bytes: value.len(), depth: 0 };
                    self.spend(cost, &span)?;
                    self.finish(
                        Node::new(content, span),
                        cost,
                        anchor,
                        matches!(style, ScalarStyle::Plain).then_some(&*value),
                    )?;
                }
                Event::SequenceStart(_, anchor, tag) => {
                    self.begin(CollectionKind::Sequence(Vec::new()), &span, anchor, tag.as_deref())?;
                }
                Event::MappingStart(_, anchor, tag) => {
                    let kind = CollectionKind::Mapping {
                        entries: Vec::new(),
                        key: None,
                        seen: HashMap::new(),
                        merges: Vec::new(),
                    };
                    self.begin(kind, &span, anchor, tag.as_deref())?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end(&span)?,
                Event::Alias(anchor) => {
                    let Some((node, cost)) = self.anchors.get(&anchor) else {
                        let message =
                            "this alias stands inside the value that it names, so the value would contain itself";
                        let hint =
                            "write the value out, or move the `&anchor` to a value that does not contain the alias";
                        return Err(Diagnostic::new("cyclic-alias", span, message).hint(hint));
                    };
                    let (node, cost) = (Node::new(node.content.clone(), span.clone()), *cost);
                    self.check_depth(cost.depth, &span)?;
                    self.spend(cost, &span)?;
                    self.finish(node, cost, 0, None)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn range(&self, range: Option<Span>) -> Span {
        let range = range.unwrap_or_default();
        let end = range.end.min(self.text.len());
        range.start.min(end)..end
    }

    fn scalar(&mut self, value: &str, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Content {
        match tag.map(|tag| tag.core_suffix().unwrap_or("other")) {
            None if !matches!(style, ScalarStyle::Plain) => Content::String(value.into()),
            Some("str") => Content::String(value.into()),
            None | Some("int" | "float" | "bool" | "null") => scalar::plain(value).unwrap_or_else(|| {
                let message = format!("`{value}` is not a number that can be used here");
                self.diagnostics
                    .push(Diagnostic::new("not-finite", span.clone(), message).hint("write a finite number"));
                Content::Null
            }),
            Some(_) => {
                self.refuse_tag(tag, span);
                Content::String(value.into())
            }
        }
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, span: &Span) {
        let Some(tag) = tag.filter(|tag| !matches!(tag.core_suffix(), Some("map" | "seq"))) else { return };
        let message = format!("the YAML tag `{}` means nothing in a {}", tag.original(), self.kind.name);
        self.diagnostics.push(Diagnostic::new("tag", span.clone(), message).hint("remove the tag"));
    }

    fn check_depth(&self, inner: usize, span: &Span) -> Result<(), Diagnostic> {
        if self.open.len() + inner > MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            return Err(Diagnostic::new("too-deep", span.clone(), message)
                .hint(format!("no field of a {} needs this; flatten the value", self.kind.name)));
        }
        Ok(())
    }

    fn spend(&mut self, cost: Cost, span: &Span) -> Result<(), Diagnostic> {
        self.total.nodes += cost.nodes;
        self.total.bytes += cost.bytes;
        let over = if self.total.nodes > MAX_NODES {
            format!("the file has more than {MAX_NODES} values once its aliases are expanded")
        } else if self.total.bytes > MAX_SCALAR_BYTES {
            format!("the file has more than {MAX_SCALAR_BYTES} bytes of text once its aliases are expanded")
        } else {
            return Ok(());
        };
        let hint = "use fewer aliases, and keep data (labels, vocabularies) in files of their own";
        Err(Diagnostic::new("too-large", span.clone(), over).hint(hint))
    }

    fn begin(&mut self, kind: CollectionKind, span: &Span, anchor: usize, tag: Option<&Tag>) -> Result<(), Diagnostic> {
        self.refuse_tag(tag, span);
        self.check_depth(1, span)?;
        let cost = Cost { nodes: 1, bytes: 0, depth: 1 };
        self.spend(cost, span)?;
        self.open.push(OpenCollection { kind, start: span.start, anchor, cost });
        Ok(())
    }

    fn end(&mut self, span: &Span) -> Result<(), Diagnostic> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        // The end of a block is reported where the next token stands.
        let end = open.start + self.text.get(open.start..span.end).unwrap_or_default().trim_end().len();
        let content = match open.kind {
            CollectionKind::Sequence(items) => Content::Sequence(items),
            CollectionKind::Mapping { mut entries, merges, .. } => {
                if !merges.is_empty() {
                    self.merge(&mut entries, merges);
                }
                Content::Mapping(entries)
            }
        };
        self.finish(Node::new(content, open.start..end), open.cost, open.anchor, None)
    }

    /// `<<: value`: the keys of a mapping, or of a list of mappings, that are not yet there.
    fn merge(&mut self, entries: &mut Vec<Entry>, merges: Vec<Node>) {
        let mut known: HashSet<Arc<str>> = entries.iter().map(|(key, _)| key.value.clone()).collect();
        let sources = merges.into_iter().flat_map(|node| match node.content {
            Content::Sequence(items) => items,
            content => vec![Node::new(content, node.span)],
        });
        for source in sources {
            let Content::Mapping(more) = source.content else {
                let message = format!("`<<` merges a mapping, but this is {}", source.kind_in_words());
                self.diagnostics
                    .push(Diagnostic::new("merge", source.span, message).hint("name a mapping: `<<: *anchor`"));
                continue;
            };
            entries.extend(more.into_iter().filter(|(key, _)| known.insert(key.value.clone())));
        }
    }

    /// Puts a finished node where it belongs: into the open list or mapping, as a key or a value.
    fn finish(&mut self, node: Node, cost: Cost, anchor: usize, plain: Option<&str>) -> Result<(), Diagnostic> {
        if anchor != 0 {
            // The copy that aliases are made from takes memory too.
            self.spend(cost, &node.span)?;
            self.anchors.insert(anchor, (node.clone(), cost));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.cost.contain(cost);
        match &mut open.kind {
            CollectionKind::Sequence(items) => items.push(node),
            CollectionKind::Mapping { entries, key, seen, merges } => match key.take() {
                None => *key = Some(Self::key(self.text, node, plain, &mut self.diagnostics)),
                Some(Key::Merge) => merges.push(node),
                Some(Key::Unsupported) => {}
                Some(Key::Name(name)) => {
                    if let Some(first) = seen.get(&name.value) {
                        let line = self.text[..*first].matches('\n').count() + 1;
                        let message = format!("`{}` is given twice", name.value);
                        let hint = format!("it is first given on line {line}; keep one of the two");
                        self.diagnostics
                            .push(Diagnostic::new("duplicate-key", name.span, message).label("again here").hint(hint));
                    } else {
                        seen.insert(name.value.clone(), name.span.start);
                        entries.push((name, node));
                    }
                }
            },
        }
        Ok(())
    }

    fn key(text: &str, node: Node, plain: Option<&str>, diagnostics: &mut Vec<Diagnostic>) -> Key {
        match (plain, node.content) {
            (Some("<<"), _) => Key::Merge,
            (Some(written), _) => Key::Name(Spanned::new(written.into(), node.span)),
            (None, Content::String(name)) => Key::Name(Spanned::new(name, node.span)),
            (None, _) => {
                let span = first_line(&node.span, text);
                let mut diagnostic = Diagnostic::new("key", span.clone(), "a key must be text");
                diagnostic = if text[span.start..].starts_with('{') {
                    diagnostic.hint("if this is meant as text, such as a `{{placeholder}}`, put it in quotes")
                } else {
                    diagnostic.hint("write a plain word before the colon")
                };
                diagnostics.push(diagnostic);
                Key::Unsupported
            }
        }
    }
}
