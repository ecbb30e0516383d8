//! The folders that `gpux new` writes: files of `host/author/templates/`, embedded.

/// One file of a template.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateFile {
    /// where it goes in the new folder. An ending `.template` is left out: it hides from our own
    /// tools files that they would read (`Cargo.toml`, `.gitignore`).
    path: &'static str,
    content: &'static [u8],
}

/// The values of placeholders in double braces.
pub(super) struct Placeholders<'a> {
    /// the name of the pipeline or the step
    pub(super) name: &'a str,
}

impl TemplateFile {
    pub(super) const fn new(path: &'static str, content: &'static [u8]) -> Self {
        Self { path, content }
    }

    /// The path in the new folder, with `/` between its parts.
    pub(super) fn path(&self) -> &'static str {
        self.path.strip_suffix(".template").unwrap_or(self.path)
    }

    /// Its content with the placeholders replaced; a file that is not text stays unchanged.
    pub(super) fn render(&self, placeholders: &Placeholders<'_>) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(self.content) else { return self.content.to_vec() };
        let identifier = placeholders.name.replace('-', "_");
        let type_name: String = placeholders.name.split('-').map(capitalized).collect();
        let filled = [
            ("{{name}}", placeholders.name),
            ("{{identifier}}", &identifier),
            ("{{TypeName}}", &type_name),
            ("{{gpux_version}}", env!("CARGO_PKG_VERSION")),
        ];
        filled.into_iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value)).into_bytes()
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// The folders of `templates/`, each a list of its files: written by `build.rs`.
pub(super) mod embedded {
    use super::TemplateFile;

    include!(concat!(env!("OUT_DIR"), "/templates.rs"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_placeholders_only() {
        let placeholders = Placeholders { name: "blur-faces" };
        let text = TemplateFile::new("src/x.rs.template", b"{{name}} {{identifier}} {{TypeName}}");
        assert_eq!(text.render(&placeholders), b"blur-faces blur_faces BlurFaces");
        assert_eq!(text.path(), "src/x.rs");
        let bytes = TemplateFile::new("x.png", b"\xff{{name}}");
        assert_eq!(bytes.render(&placeholders), b"\xff{{name}}");
    }

    /// The crate embedded in a new Rust step must not depend on this workspace.
    #[test]
    fn embedded_crate_needs_no_workspace() {
        let file = embedded::RUST.iter().find(|file| file.path == "gpux-step/Cargo.toml").unwrap();
        let text = std::str::from_utf8(file.content).unwrap();
        assert!(text.contains(concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"")), "{text}");
        assert!(!text.contains("workspace"), "{text}");
    }
}
