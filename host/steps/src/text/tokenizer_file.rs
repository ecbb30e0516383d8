//! Finds the `tokenizer.json` that the option `tokenizer` names.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gpux_core::{BuildError, FileError, OptionOrigin, ProjectFiles, hub_folders};

/// Largest `tokenizer.json` that is read, in bytes. The largest in use are under 40 MB.
const MAX_FILE: u64 = 64 << 20;

/// A `tokenizer.json` and where it was found.
pub(crate) struct TokenizerFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) padding: DeclaredPadding,
}

/// What the files beside a `tokenizer.json` say about padding; transformers prefers it to what the tokenizer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclaredPadding {
    /// the token that fills up
    pub(crate) token: Option<String>,
    /// whether it stands before the text
    pub(crate) left: Option<bool>,
}

/// Largest file beside a `tokenizer.json` that is read, in bytes: some list many thousands of tokens.
const MAX_FILE_BESIDE: u64 = 16 << 20;

/// Their names, the one that counts first.
const BESIDE: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];

impl TokenizerFile {
    /// With the files beside it, which `read` gives.
    fn with_padding(
        path: PathBuf,
        bytes: Vec<u8>,
        read: impl Fn(&Path) -> Result<Vec<u8>, FileError>,
    ) -> Result<Self, BuildError> {
        let mut padding = DeclaredPadding::default();
        for name in BESIDE {
            let beside = path.with_file_name(name);
            let Some(bytes) = if_there(read(&beside))? else { continue };
            let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| {
                BuildError::option("tokenizer", format!("`{}` is not JSON: {error}", beside.display()))
            })?;
            // A text, or what says how the token is cut out of the text.
            let token = &json["pad_token"];
            let token = token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned);
            padding.token = padding.token.or(token);
            padding.left = padding.left.or_else(|| json["padding_side"].as_str().map(|side| side == "left"));
        }
        Ok(Self { path, bytes, padding })
    }
}

/// Finds the file that `name` means: a path; else `./NAME/tokenizer.json`, or a snapshot of that name in the local
/// Hugging Face cache. Where nothing has the name, `./tokenizer.json` stands in for it, with a warning.
pub(crate) fn find(name: &str, site: &OptionOrigin<'_>) -> Result<TokenizerFile, BuildError> {
    let OptionOrigin::Pipeline { files, .. } = site else {
        return Err(BuildError::option("tokenizer", FileError::Forbidden));
    };
    let found = find_in(name, files, &hub_folders())?;
    files.note_content(&found.bytes);
    // Of the files beside it, nothing else is used.
    if found.padding != DeclaredPadding::default() {
        let DeclaredPadding { token, left } = &found.padding;
        files.note_content(format!("padding: {token:?} {left:?}"));
    }
    Ok(found)
}

fn find_in(name: &str, files: &ProjectFiles, hubs: &[PathBuf]) -> Result<TokenizerFile, BuildError> {
    if name.is_empty() {
        return Err(BuildError::option("tokenizer", "`tokenizer` is an empty name"));
    }

    let path = Path::new(name);
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let is_path = name.starts_with('.') || is_json || path.is_absolute();
    let local = |path: PathBuf, looked: &mut Vec<PathBuf>| {
        looked.push(path.clone());
        let beside = |path: &Path| files.read_unnoted(path, MAX_FILE_BESIDE);
        let found = if_there(files.read_unnoted(&path, MAX_FILE))?;
        found.map(|bytes| TokenizerFile::with_padding(path, bytes, beside)).transpose()
    };

    let mut looked = Vec::new();
    for path in [path.to_owned(), path.join("tokenizer.json")] {
        if let Some(found) = local(path, &mut looked)? {
            return Ok(found);
        }
    }

    if !is_path {
        let cached = find_in_hubs(name, hubs, &mut looked)?;
        let names: Vec<_> = looked.iter().map(|path| format!("`{}`", path.display())).collect();
        match (cached, local("tokenizer.json".into(), &mut looked)?) {
            (Some(cached), beside) => {
                if beside.is_some_and(|beside| beside.bytes != cached.bytes) {
                    files.warn(format!(
                        "the tokenizer `{name}` is `{}`; `tokenizer.json` beside gpux.yml is another one and is not \
                         used: write `tokenizer: ./tokenizer.json` if it is the one you mean",
                        cached.path.display()
                    ));
                }
                return Ok(cached);
            }
            (None, Some(beside)) => {
                files.warn(format!(
                    "there is no tokenizer `{name}` (looked for {}), so `tokenizer.json` beside gpux.yml is used, \
                     whichever it is: write `tokenizer: ./tokenizer.json` if it is the one you mean",
                    names.join(", ")
                ));
                return Ok(beside);
            }
            (None, None) => {}
        }
    }

    let looked: Vec<_> = looked.iter().map(|path| format!("`{}`", path.display())).collect();
    let message = format!("no tokenizer for `{name}`; looked for {}", looked.join(", "));
    let similar = match files.resolve(path) {
        Err(FileError::NotFound { similar, .. }) if is_path => similar,
        _ => None,
    };
    let hint = similar.map(|similar| format!("did you mean `{similar}`?"));
    let hint = hint.unwrap_or_else(|| "put the model's tokenizer.json beside gpux.yml".to_owned());
    Err(BuildError::option("tokenizer", message).with_hint(hint))
}

/// The content of a file; `None` if there is no file.
fn if_there(read: Result<Vec<u8>, FileError>) -> Result<Option<Vec<u8>>, BuildError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FileError::NotFound { .. } | FileError::NotAFile(_)) => Ok(None),
        Err(other) => Err(BuildError::option("tokenizer", other)),
    }
}

/// The files that finding the tokenizer `name` in the local Hugging Face caches reads: the lists of a model's snapshots,
/// and their tokenizers.
pub fn cached_tokenizers(name: &str) -> Vec<PathBuf> {
    let Some(folder) = hub_name(name) else { return Vec::new() };
    let hubs = hub_folders();
    let models = hubs.into_iter().map(|hub| hub.join(&folder)).filter(|model| model.is_dir());
    models
        .flat_map(|model| {
            let with_beside = |path: PathBuf| {
                let beside = BESIDE.map(|name| path.with_file_name(name));
                std::iter::once(path).chain(beside)
            };
            let tokenizers = snapshots(&model).into_iter().flat_map(with_beside).filter(|path| path.is_file());
            [model.join("snapshots"), model.join("refs")].into_iter().chain(tokenizers).collect::<Vec<_>>()
        })
        .collect()
}

/// The file of the model `name` in the first cache that has it. A cache lies outside the pipeline's folder, so only
/// plain model names may lead into it.
fn find_in_hubs(name: &str, hubs: &[PathBuf], looked: &mut Vec<PathBuf>) -> Result<Option<TokenizerFile>, BuildError> {
    let Some(folder) = hub_name(name) else { return Ok(None) };
    for hub in hubs {
        let model = hub.join(&folder);
        for path in snapshots(&model) {
            if let Some(bytes) = if_there(read(&path))? {
                return TokenizerFile::with_padding(path, bytes, read).map(Some);
            }
        }
        looked.push(model.join("snapshots/*/tokenizer.json"));
    }
    Ok(None)
}

/// The cache's folder for a model's name; `None` if it cannot be one.
fn hub_name(name: &str) -> Option<String> {
    let parts: Vec<_> = name.split('/').collect();
    let plain = |part: &&str| {
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    (parts.len() <= 2 && parts.iter().all(plain)).then(|| format!("models--{}", parts.join("--")))
}

/// The `tokenizer.json` of each snapshot of a cached model: `main` first, then by name.
fn snapshots(model: &Path) -> Vec<PathBuf> {
    let main = std::fs::read_to_string(model.join("refs/main")).unwrap_or_default();
    let folders = std::fs::read_dir(model.join("snapshots")).into_iter().flatten().flatten();
    let mut names: Vec<_> = folders.map(|entry| entry.file_name()).collect();
    names.sort_by_key(|name| (name.to_str() != Some(main.trim()), name.clone()));
    names.into_iter().map(|name| model.join("snapshots").join(name).join("tokenizer.json")).collect()
}

/// Reads a file of the cache, whose entries are links.
fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let io = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            FileError::NotFound { path: path.to_owned(), similar: None }
        }
        _ => FileError::Io { path: path.to_owned(), source },
    };
    if !path.metadata().map_err(io)?.is_file() {
        return Err(FileError::NotAFile(path.to_owned()));
    }
    let file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    if size > MAX_FILE {
        return Err(FileError::TooLarge { path: path.to_owned(), size, limit: MAX_FILE });
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn looks_names_up_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (project, hub) = (folder.path().join("project"), folder.path().join("hub"));
        std::fs::create_dir(&project).unwrap();
        let files = ProjectFiles::new(&project, false);
        let hubs = [folder.path().join("empty"), hub.clone()];
        let found = |name: &str| find_in(name, &files, &hubs).map(|found| String::from_utf8(found.bytes).unwrap());

        let error = found("org/bert").unwrap_err().to_string();
        for place in
            ["`tokenizer.json`", "`org/bert/tokenizer.json`", "hub/models--org--bert/snapshots/*/tokenizer.json"]
        {
            assert!(error.contains(place), "{error}");
        }
        let snapshots = hub.join("models--org--bert/snapshots");
        write(&snapshots.join("1111/tokenizer.json"), "old");
        write(&snapshots.join("2222/tokenizer.json"), "main");
        assert_eq!(found("org/bert").unwrap(), "old");
        write(&hub.join("models--org--bert/refs/main"), "2222\n");
        assert_eq!(found("org/bert").unwrap(), "main");
        write(&project.join("org/bert/tokenizer.json"), "named");
        assert_eq!(found("org/bert").unwrap(), "named");
        assert_eq!(found("./org/bert").unwrap(), "named");
        write(&project.join("some/other.json"), "path");
        assert_eq!(found("some/other.json").unwrap(), "path");
        assert!(files.warnings().is_empty());
    }

    #[test]
    fn padding_is_declared_beside_the_tokenizer() {
        let folder = tempfile::tempdir().unwrap();
        let files = ProjectFiles::new(folder.path(), false);
        let padding = || find_in("./t/tokenizer.json", &files, &[]).map(|found| found.padding);
        write(&folder.path().join("t/tokenizer.json"), "{}");
        assert_eq!(padding().unwrap(), DeclaredPadding::default());
        write(
            &folder.path().join("t/special_tokens_map.json"),
            r#"{"pad_token": {"content": "<pad>", "lstrip": false}}"#,
        );
        assert_eq!(padding().unwrap(), DeclaredPadding { token: Some("<pad>".into()), left: None });
        write(&folder.path().join("t/tokenizer_config.json"), r#"{"pad_token": "[P]", "padding_side": "left"}"#);
        assert_eq!(padding().unwrap(), DeclaredPadding { token: Some("[P]".into()), left: Some(true) });
        write(&folder.path().join("t/tokenizer_config.json"), "{");
        assert!(padding().err().unwrap().message.contains("tokenizer_config.json` is not JSON"));
    }

    #[test]
    fn warns_about_ambiguous_tokenizer_names() {
        let folder = tempfile::tempdir().unwrap();
        let (project, hub) = (folder.path().join("project"), folder.path().join("hub"));
        write(&project.join("tokenizer.json"), "beside");
        write(&project.join("other/tokenizer.json"), "other");
        write(&hub.join("models--cached/snapshots/1/tokenizer.json"), "cached");
        write(&hub.join("models--same/snapshots/1/tokenizer.json"), "beside");
        for (name, bytes, warns) in [
            ("other", "other", None),
            ("other/", "other", None),
            ("./tokenizer.json", "beside", None),
            ("tokenizer.json", "beside", None),
            (".", "beside", None),
            ("cached", "cached", Some("`tokenizer.json` beside gpux.yml is another one and is not used")),
            ("same", "beside", None),
            ("bert-base-uncased", "beside", Some("there is no tokenizer `bert-base-uncased` (looked for `bert-base-")),
        ] {
            let files = ProjectFiles::new(&project, false);
            let found = [(); 2].map(|()| find_in(name, &files, std::slice::from_ref(&hub)).unwrap().bytes);
            assert_eq!(found, [bytes.as_bytes(), bytes.as_bytes()], "{name}");
            match (files.warnings().as_slice(), warns) {
                ([], None) => {}
                ([warning], Some(part)) => assert!(warning.contains(part), "{warning}"),
                (warnings, _) => panic!("{name}: {warnings:?}"),
            }
        }
        let files = ProjectFiles::new(&project, false);
        for name in ["", "./other.json", "missing.json", "./missing"] {
            assert!(find_in(name, &files, &[]).is_err(), "{name:?}");
        }
    }

    #[test]
    fn rejects_paths_outside_the_project() {
        let folder = tempfile::tempdir().unwrap();
        let (project, hub) = (folder.path().join("project"), folder.path().join("hub"));
        std::fs::create_dir(&project).unwrap();
        write(&folder.path().join("tokenizer.json"), "secret");
        write(&hub.join("models--..--x/snapshots/1/tokenizer.json"), "secret");
        let files = ProjectFiles::new(&project, false);
        for name in ["..", "../tokenizer.json", "../x", "a/b/c", "a/../../x", "", "models--x", "a b", &"x".repeat(5000)]
        {
            assert!(find_in(name, &files, std::slice::from_ref(&hub)).is_err(), "{name}");
        }
        let absolute = folder.path().join("tokenizer.json");
        assert!(find_in(absolute.to_str().unwrap(), &files, &[]).is_err());
        assert!(find("x", &OptionOrigin::Component).err().unwrap().message.contains("may not name files"));
    }
}
