//! `gpux.lock`: where the files of a folder came from, by commit and digest.

use std::fmt::Write as _;

/// A file in `gpux.lock`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockedFile {
    /// its path in the repository
    pub path: String,
    /// the SHA-256 of its bytes, in hexadecimal digits
    pub sha256: String,
    /// its size in bytes
    pub size: u64,
}

/// What files came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedSource {
    /// the reference, as `hf://OWNER/NAME@REVISION`
    pub from: String,
    /// its commit
    pub commit: String,
    /// the files that were taken, by their paths
    pub files: Vec<LockedFile>,
}

/// The text of a `gpux.lock`. Equal sources give equal text.
pub fn lock_text(source: &LockedSource) -> String {
    let mut text = format!(
        "# Written by gpux. Do not edit.\nversion = 1\ncontract = \"gpux:pipeline@0.1.0\"\n\n[[source]]\nfrom = {}\ncommit = {}\nfiles = [\n",
        quoted(&source.from),
        quoted(&source.commit)
    );
    for LockedFile { path, sha256, size } in &source.files {
        let _ = writeln!(text, "  {{ path = {}, digest = \"sha256:{sha256}\", size = {size} }},", quoted(path));
    }
    text + "]\n"
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_toml() {
        let file = |path: &str| LockedFile { path: path.to_owned(), sha256: "00ff".to_owned(), size: 3 };
        let source = LockedSource {
            from: "hf://a/b@main".to_owned(),
            commit: "c0".to_owned(),
            files: vec![file("config.json"), file("a \"b\"\\c")],
        };
        let expected = "# Written by gpux. Do not edit.\nversion = 1\ncontract = \"gpux:pipeline@0.1.0\"\n\n[[source]]\n\
                        from = \"hf://a/b@main\"\ncommit = \"c0\"\nfiles = [\n  \
                        { path = \"config.json\", digest = \"sha256:00ff\", size = 3 },\n  \
                        { path = \"a \\\"b\\\"\\\\c\", digest = \"sha256:00ff\", size = 3 },\n]\n";
        assert_eq!(lock_text(&source), expected);
    }
}
