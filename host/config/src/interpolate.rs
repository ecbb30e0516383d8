//! `${VAR}` and `${VAR:-default}` in the values of a file.

use super::diagnostic::Diagnostic;
use super::node::{Content, Node};
use super::scalar;
use super::source_file::SourceFile;

/// Bytes that all variables of a file may put into it.
const MAX_INSERTED: usize = 1 << 20;

/// Looks up a variable.
type Lookup<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

/// What the names of variables that hold secrets end in.
const SECRETS: [&str; 4] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];

/// The variables that a file may read: those named `GPUX_*`, but no secrets, and those that the operator allows.
pub struct Variables<'a> {
    access: Access,
    lookup: Lookup<'a>,
}

/// Which variables a file may read.
#[derive(Debug)]
enum Access {
    /// every one: the file is the operator's own
    All,
    /// those named `GPUX_*` that hold no secrets and are not `reserved`, and all that are `allowed`
    Public { allowed: Vec<String>, reserved: Vec<String> },
}

impl std::fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variables").field("access", &self.access).finish_non_exhaustive()
    }
}

impl<'a> Variables<'a> {
    /// The names the operator allows (`--env NAME`), and how to read a variable.
    pub fn new(allowed: impl IntoIterator<Item = String>, lookup: impl Fn(&str) -> Option<String> + 'a) -> Self {
        let access = Access::Public { allowed: allowed.into_iter().collect(), reserved: Vec::new() };
        Self { access, lookup: Box::new(lookup) }
    }

    /// No variable is set.
    pub fn empty() -> Self {
        Self::new([], |_| None)
    }

    /// The variables of this process, for a file of somebody whom the operator does not trust. Those that are
    /// `reserved`, since a file of the operator's own reads them, count as secrets.
    pub fn from_environment(
        allowed: impl IntoIterator<Item = String>,
        reserved: impl IntoIterator<Item = String>,
    ) -> Self {
        let (allowed, reserved) = (allowed.into_iter().collect(), reserved.into_iter().collect());
        Self { access: Access::Public { allowed, reserved }, lookup: Box::new(|name| std::env::var(name).ok()) }
    }

    /// All variables, for a file of the operator's own.
    pub fn of_operator(lookup: impl Fn(&str) -> Option<String> + 'a) -> Self {
        Self { access: Access::All, lookup: Box::new(lookup) }
    }

    fn may_read(&self, name: &str) -> bool {
        match &self.access {
            Access::All => true,
            Access::Public { allowed, reserved } => {
                let is_listed = |list: &[String]| list.iter().any(|listed| listed == name);
                is_listed(allowed) || name.starts_with("GPUX_") && !is_secret(name) && !is_listed(reserved)
            }
        }
    }
}

/// Whether a variable of this name is taken for a secret: it ends in `_KEY`, `_TOKEN`, `_SECRET` or `_PASSWORD`.
pub fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|end| name.ends_with(end))
}

/// The names of the variables in a file's text, also in its comments.
pub fn variable_names(text: &str) -> impl Iterator<Item = &str> {
    split(text).into_iter().filter_map(|part| match part {
        Part::Variable { name, .. } => Some(name),
        Part::Text(_) | Part::Broken(_) => None,
    })
}

/// Replaces the variables in every text of `root`. A value that is one variable and nothing else
/// is read as if it stood in the file without quotes, so a port is a number.
pub(super) fn interpolate(root: &mut Node, source: &SourceFile, variables: &Variables<'_>) -> Vec<Diagnostic> {
    let mut interpolator = Interpolator { source, variables, inserted: 0, diagnostics: Vec::new() };
    interpolator.node(root);
    interpolator.diagnostics
}

struct Interpolator<'a> {
    source: &'a SourceFile,
    variables: &'a Variables<'a>,
    inserted: usize,
    diagnostics: Vec<Diagnostic>,
}

/// A part of a text: literal, or a variable.
enum Part<'t> {
    Text(&'t str),
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
    /// `${` without `}`, or with something else than a name inside
    Broken(&'t str),
}

impl Interpolator<'_> {
    fn node(&mut self, node: &mut Node) {
        match &mut node.content {
            Content::Sequence(items) => items.iter_mut().for_each(|item| self.node(item)),
            Content::Mapping(entries) => entries.iter_mut().for_each(|(_, value)| self.node(value)),
            Content::String(text) if text.contains('$') => {
                let text = text.clone();
                node.content = self.text(&text, node);
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, node: &Node) -> Content {
        let parts = split(text);
        if let [Part::Variable { name, default }] = parts.as_slice() {
            let value = self.value(name, *default, node);
            return scalar::plain(&value).unwrap_or_else(|| Content::String(value.into()));
        }
        let mut out = String::new();
        for part in parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Variable { name, default } => out.push_str(&self.value(name, default, node)),
                Part::Broken(rest) => {
                    let shown: String = rest.chars().take(24).collect();
                    let message = format!("`{shown}` is not a variable");
                    let hint =
                        "write `${GPUX_NAME}` or `${GPUX_NAME:-default}`; a plain `$` before `{` is written `$$`";
                    self.report("variable", node, "${", message, hint);
                }
            }
        }
        Content::String(out.into())
    }

    fn value(&mut self, name: &str, default: Option<&str>, node: &Node) -> String {
        if !self.variables.may_read(name) {
            let message = format!("the variable `{name}` may not be read");
            let hint = format!(
                "a file reads only variables named `GPUX_*` that are no secrets (`…_KEY`, `…_TOKEN`, `…_SECRET`, \
                 `…_PASSWORD`, and those in the keys file); whoever runs it can pass this one with `--env {name}`"
            );
            self.report("variable", node, &format!("${{{name}"), message, hint);
            return String::new();
        }
        let set = (self.variables.lookup)(name).filter(|value| !(value.is_empty() && default.is_some()));
        let Some(value) = set.or_else(|| default.map(str::to_owned)) else {
            let message = format!("the variable `{name}` is not set");
            let hint = format!("set it, or write a default: `${{{name}:-value}}`");
            self.report("variable", node, &format!("${{{name}"), message, hint);
            return String::new();
        };
        self.inserted = self.inserted.saturating_add(value.len());
        if self.inserted > MAX_INSERTED {
            let message = format!("the variables put more than {MAX_INSERTED} bytes into the file");
            self.report("variable", node, &format!("${{{name}"), message, "shorten their values");
            return String::new();
        }
        value
    }

    /// Points at `written` inside the node if it is there as written.
    fn report(&mut self, code: &'static str, node: &Node, written: &str, message: String, hint: impl Into<String>) {
        let covered = self.source.text.get(node.span.clone()).unwrap_or_default();
        let span = covered.find(written).map_or(node.span.clone(), |at| {
            let rest = &covered[at..];
            let length = rest.find('}').map_or(rest.lines().next().unwrap_or_default().len(), |end| end + 1);
            node.span.start + at..node.span.start + at + length
        });
        self.diagnostics.push(Diagnostic::new(code, span, message).hint(hint));
    }
}

fn split(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if at > 0 {
            parts.push(Part::Text(&rest[..at]));
        }
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            parts.push(Part::Text("$"));
            rest = escaped;
        } else if let Some(inside) = after.strip_prefix('{') {
            let Some(end) = inside.find('}') else {
                parts.push(Part::Broken(&rest[at..]));
                return parts;
            };
            let (name, default) = inside[..end].split_once(":-").map_or((&inside[..end], None), |(n, d)| (n, Some(d)));
            let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            parts.push(if valid { Part::Variable { name, default } } else { Part::Broken(&rest[at..at + end + 3]) });
            rest = &inside[end + 1..];
        } else {
            parts.push(Part::Text("$"));
            rest = after;
        }
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (serde_json::Value, Vec<Diagnostic>) {
        let mut variables = Variables::new(["HOME".to_owned(), "GPUX_API_TOKEN".to_owned()], |name| match name {
            "GPUX_PORT" => Some("9000".into()),
            "HOME" => Some("/home/ada".into()),
            "GPUX_API_TOKEN" => Some("allowed".into()),
            "GPUX_EMPTY" => Some(String::new()),
            "SECRET" | "GPUX_ADMIN_KEY" | "GPUX_OWN" => Some("leaked".into()),
            _ => None,
        });
        let Access::Public { reserved, .. } = &mut variables.access else { panic!("every variable may be read") };
        reserved.push("GPUX_OWN".to_owned());
        let source = SourceFile::new("gpux.yml", text);
        let mut root = Node::text(text, 0..text.len());
        let diagnostics = interpolate(&mut root, &source, &variables);
        (root.to_json(), diagnostics)
    }

    #[test]
    fn inserts_typed_values() {
        for (text, expected) in [
            ("${GPUX_PORT}", serde_json::json!(9000)),
            ("port ${GPUX_PORT}", serde_json::json!("port 9000")),
            ("${GPUX_NONE:-0.5}", serde_json::json!(0.5)),
            ("${GPUX_EMPTY:-x}", serde_json::json!("x")),
            ("${HOME}/m.onnx", serde_json::json!("/home/ada/m.onnx")),
            ("${GPUX_API_TOKEN}", serde_json::json!("allowed")),
            ("$${GPUX_PORT} $5 $", serde_json::json!("${GPUX_PORT} $5 $")),
        ] {
            let (value, diagnostics) = read(text);
            assert_eq!((value, diagnostics), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn rejects_unlisted_and_malformed_variables() {
        for text in [
            "${SECRET}",
            "${SECRET:-x}",
            "${GPUX_ADMIN_KEY}",
            "${GPUX_OWN}",
            "${GPUX_NONE}",
            "a ${",
            "${a b}",
            "${}",
            "${GPUX_PORT",
        ] {
            let (value, diagnostics) = read(text);
            assert_eq!(diagnostics.len(), 1, "{text}");
            assert!(!value.to_string().contains("leaked"));
        }
        assert_eq!(read("at ${SECRET}!").1[0].span, 3..12);
    }
}
