//! The lines of a gpux.yml, with where each number comes from.

use std::fmt::Write as _;

/// A step of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct StepLines {
    name: &'static str,
    options: Vec<(&'static str, String, String)>,
    source: String,
}

impl StepLines {
    /// A step without options.
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, options: Vec::new(), source: String::new() }
    }

    /// Where it comes from: a file and a key.
    pub(super) fn from(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// With an option.
    pub(super) fn option(self, key: &'static str, value: impl ToString) -> Self {
        self.sourced(key, value, "")
    }

    /// With an option, and where its value comes from.
    pub(super) fn sourced(mut self, key: &'static str, value: impl ToString, source: impl Into<String>) -> Self {
        self.options.push((key, value.to_string(), source.into()));
        self
    }

    /// Whether it runs the model.
    pub(super) fn is_model(&self) -> bool {
        self.name == "model"
    }

    /// Appends it to the lines of `pipeline:`.
    pub(super) fn write(&self, lines: &mut String) {
        let comment = |source: &str| if source.is_empty() { String::new() } else { format!("  # {source}") };
        let Self { name, options, source } = self;
        if options.is_empty() {
            let _ = writeln!(lines, "  - {name}{}", comment(source));
        } else if options.iter().all(|(_, _, source)| source.is_empty()) {
            let options: Vec<_> = options.iter().map(|(key, value, _)| format!("{key}: {value}")).collect();
            let _ = writeln!(lines, "  - {name}: {{ {} }}{}", options.join(", "), comment(source));
        } else {
            let _ = writeln!(lines, "  - {name}:{}", comment(source));
            for (key, value, source) in options {
                let _ = writeln!(lines, "      {key}: {value}{}", comment(source));
            }
        }
    }
}

/// A text as YAML has it on one line: a name as it is, anything else as JSON.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if is_plain { text.to_owned() } else { serde_json::json!(text).to_string() }
}

/// A text in a comment: on one line.
pub(super) fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    line.trim().to_owned()
}
