//! The grants of component steps, checked against the policy.

use std::path::Path;

use super::load_options::LoadOptions;
use super::policy::AllowedGrants;
use gpux_config::{Diagnostic, Spanned, Wasi, WasmGrant, WasmSpec};
use gpux_core::files::{is_same, lies_in, resolve_path};
use gpux_core::{CacheDir, ProjectFiles, SharedCache};
use gpux_sandbox::{Capability, EnvGrant, FolderGrant, Grants, Refusal, RefusalReason};
use gpux_store::is_laid_out;

/// The grants of a step, and a diagnostic for each that the policy denies.
pub(super) fn resolve(
    asked: &WasmGrant,
    load_options: &LoadOptions,
    files: &ProjectFiles,
) -> (Grants, Vec<Diagnostic>) {
    let mut faults = Vec::new();
    let mut grants =
        Grants { models: asked.models.iter().map(|name| name.value.clone()).collect(), ..Grants::default() };
    for part in &asked.wasi {
        let (granted, allowed) = match part.value {
            Wasi::Clock => (&mut grants.clock, load_options.policy.grants.clock),
            Wasi::Random => (&mut grants.random, load_options.policy.grants.random),
            Wasi::Stdio => (&mut grants.stdio, true),
        };
        *granted = true;
        if !allowed {
            faults.push(not_allowed(part, "wasi", keyword(part.value)));
        }
    }
    for name in &asked.env {
        match variable(name, &load_options.policy.grants) {
            Ok(variable) => grants.env.push(variable),
            Err(fault) => faults.push(fault),
        }
    }
    for dir in &asked.dirs {
        match folder(dir, load_options, files) {
            Ok(dir) => grants.dirs.push(dir),
            Err(fault) => faults.push(fault),
        }
    }
    (grants, faults)
}

const fn keyword(part: Wasi) -> &'static str {
    match part {
        Wasi::Clock => "clock",
        Wasi::Random => "random",
        Wasi::Stdio => "stdio",
    }
}

fn not_allowed<T>(asked: &Spanned<T>, key: &str, flag: impl std::fmt::Display) -> Diagnostic {
    let message = format!("this grant of `{key}` needs the operator's word");
    Diagnostic::new("allow", asked.span.clone(), message)
        .hint(format!("whoever runs the pipeline can pass `--allow {flag}`"))
}

fn variable(name: &Spanned<String>, allow: &AllowedGrants) -> Result<EnvGrant, Diagnostic> {
    let fault = |message: String| Diagnostic::new("grant", name.span.clone(), message);
    if name.value.is_empty() || name.value.contains(['=', '\0']) {
        return Err(fault(format!("`{}` cannot be the name of a variable", name.value)));
    }
    if !allow.env.contains(&name.value) {
        return Err(not_allowed(name, "env", format_args!("env={}", name.value)));
    }
    match std::env::var(&name.value) {
        Ok(value) => Ok(EnvGrant { name: name.value.clone(), value: Some(value) }),
        Err(std::env::VarError::NotPresent) => Ok(EnvGrant { name: name.value.clone(), value: None }),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(fault(format!("the variable `{}` is not valid UTF-8, so no component can read it", name.value)))
        }
    }
}

fn folder(
    dir: &Spanned<gpux_config::DirGrant>,
    load_options: &LoadOptions,
    files: &ProjectFiles,
) -> Result<FolderGrant, Diagnostic> {
    let fault = |message: String| Diagnostic::new("grant", dir.span.clone(), message);
    let gpux_config::DirGrant { path, writable } = &dir.value;
    let (found, opened) = files.open_folder(Path::new(path)).map_err(|error| fault(error.to_string()))?;
    let allowed = load_options.policy.grants.dirs.iter().any(|allowed| {
        let holds = resolve_path(&files.root().join(&allowed.path)).is_ok_and(|allowed| lies_in(&found, &allowed));
        holds && (allowed.writable || !writable)
    });
    if !allowed {
        return Err(not_allowed(dir, "dirs", format_args!("dir={path}{}", if *writable { ":rw" } else { "" })));
    }
    // By what they are: a bind mount, or /proc/PID/root, is another path to the same folder.
    let holds = |folder: &Path, path: &Path| path.ancestors().any(|around| is_same(around, folder));
    let touches = |other: &Path| holds(other, &found) || holds(&found, other);
    let own = load_options.cache.as_ref();
    let roots = own.map(CacheDir::root).into_iter().chain(own.and_then(CacheDir::shared).map(SharedCache::root));
    if roots.filter_map(|root| resolve_path(root).ok()).any(|cache| touches(&cache)) {
        let what = if *writable {
            "write to gpux's cache: what lies there is run"
        } else {
            "read gpux's cache: its key lies there or beside it"
        };
        return Err(fault(format!("a component may not {what}")));
    }
    if *writable {
        // Its files are links to those of the store, which other pipelines have, too.
        if is_laid_out(files.root()) && resolve_path(files.root()).is_ok_and(|project| holds(&project, &found)) {
            return Err(fault("a component may not write to the folder of a pipeline in the store".to_owned())
                .hint("a pipeline in a folder of its own can be granted that"));
        }
        // Write access there would let the component change its own grants.
        if resolve_path(files.root()).is_ok_and(|project| holds(&found, &project)) {
            return Err(fault("a component may not write to the folder of its own gpux.yml".to_owned())
                .hint("grant a folder inside it"));
        }
        // Components are set up there.
        if resolve_path(&std::env::temp_dir()).is_ok_and(|temporary| holds(&found, &temporary)) {
            return Err(fault("a component may not write to the folder of all temporary files".to_owned())
                .hint("grant a folder inside it"));
        }
    }
    Ok(FolderGrant { name: path.clone(), folder: found, writable: *writable, opened: Some(opened.into()) })
}

/// The imports of a component that it is not granted, each with the line to add and the flag.
pub(super) fn import_diagnostics(
    refusals: &[Refusal],
    wasm: &WasmSpec,
    load_options: &LoadOptions,
    models: &[&str],
) -> Vec<Diagnostic> {
    let missing: Vec<_> = refusals
        .iter()
        .filter_map(|refusal| match refusal.reason {
            RefusalReason::NotGranted(capability) => Some(capability),
            RefusalReason::Never(_) => None,
        })
        .collect();
    let here = &wasm.component;
    let diagnostic = |refusal: &Refusal| {
        let diagnostic = Diagnostic::new("import", here.span.clone(), format!("{}: {refusal}", here.value));
        match refusal.reason {
            RefusalReason::NotGranted(_) => diagnostic.hint(remedy(&wasm.grant, &missing, load_options, models)),
            RefusalReason::Never(_) => diagnostic.hint("use a component that does without"),
        }
    };
    refusals.iter().map(diagnostic).collect()
}

/// "add `grant: { … }` to this step, and …": everything that is missing, in one line.
fn remedy(granted: &WasmGrant, missing: &[Capability], load_options: &LoadOptions, models: &[&str]) -> String {
    let mut wasi: Vec<_> = granted.wasi.iter().map(|part| keyword(part.value)).collect();
    let mut names: Vec<_> = granted.models.iter().map(|name| name.value.as_str()).collect();
    let mut flags = Vec::new();
    for capability in missing {
        match capability {
            Capability::Models if models.is_empty() => names.push("NAME"),
            Capability::Models => names.extend(models),
            Capability::Clock => wasi.push("clock"),
            Capability::Random => wasi.push("random"),
            Capability::Stdio => wasi.push("stdio"),
            // Never missing: without a folder or a variable they give nothing.
            Capability::Files | Capability::Environment => {}
        }
        flags.extend(match capability {
            Capability::Clock if !load_options.policy.grants.clock => Some("clock"),
            Capability::Random if !load_options.policy.grants.random => Some("random"),
            _ => None,
        });
    }
    let list = |key: &str, items: Vec<String>| (!items.is_empty()).then(|| format!("{key}: [{}]", items.join(", ")));
    let owned = |items: Vec<&str>| items.into_iter().map(str::to_owned).collect();
    let parts = [
        list("models", owned(names)),
        list("wasi", owned(wasi)),
        list("env", granted.env.iter().map(|name| name.value.clone()).collect()),
        list("dirs", granted.dirs.iter().map(|dir| dir.value.to_string()).collect()),
    ];
    let line = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut hint = format!("add `grant: {{ {line} }}` to this step in gpux.yml");
    if missing.contains(&Capability::Stdio) {
        hint += ": what it prints is logged, and it finds no folder and no variable unless `dirs` and `env` name some";
    }
    if !flags.is_empty() {
        hint += &format!(", and run with `--allow {}`", flags.join(","));
    }
    hint
}

/// A warning for each grant that the component does not import.
pub(super) fn unused_warnings(capabilities: &[Capability], wasm: &WasmSpec) -> Vec<String> {
    let text = |capability: &Capability| {
        let key = match capability {
            Capability::Models => "models",
            Capability::Clock => "wasi: [clock]",
            Capability::Random => "wasi: [random]",
            Capability::Stdio => "wasi: [stdio]",
            Capability::Environment => "env",
            Capability::Files => "dirs",
        };
        format!(
            "{}: the grant `{key}` is not needed: the component imports nothing to {}",
            wasm.component.value,
            capability.words()
        )
    };
    capabilities.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    fn spanned<T>(value: T) -> Spanned<T> {
        Spanned::new(value, 0..1)
    }

    fn dirs(paths: &[&str]) -> WasmGrant {
        let Ok(dirs) = paths.iter().map(|path| path.parse().map(spanned)).collect();
        WasmGrant { dirs, ..WasmGrant::default() }
    }

    fn load_options(allow: &str) -> LoadOptions {
        let allow = if allow.is_empty() { AllowedGrants::default() } else { allow.parse().unwrap() };
        LoadOptions { policy: Policy { grants: allow, ..Policy::default() }, cache: None, ..LoadOptions::default() }
    }

    fn faults(grant: &WasmGrant, allow: &str, root: &Path) -> Vec<String> {
        let faults = resolve(grant, &load_options(allow), &ProjectFiles::new(root, false)).1;
        faults.into_iter().map(|fault| fault.hint.unwrap_or(fault.message)).collect()
    }

    #[test]
    fn rejects_folders_outside_or_not_allowed() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["assets/deep", "out"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let none: [String; 0] = [];
        assert_eq!(faults(&dirs(&["./assets/deep:ro", "out:rw"]), "dir=assets,dir=./out:rw", root.path()), none);
        let pass = |flag: &str| format!("whoever runs the pipeline can pass `--allow {flag}`");
        assert_eq!(faults(&dirs(&["./assets"]), "", root.path()).len(), 1);
        assert_eq!(faults(&dirs(&["./assets"]), "dir=./assets/deep", root.path()), [pass("dir=./assets")]);
        assert_eq!(faults(&dirs(&["./out:rw"]), "dir=./out", root.path()), [pass("dir=./out:rw")]);
        assert!(faults(&dirs(&[".."]), "dir=/", root.path())[0].contains("leads out of the pipeline's folder"));
        assert!(faults(&dirs(&["./none"]), "dir=/", root.path())[0].contains("no file at"));
        let (grants, _) =
            resolve(&dirs(&["./out:rw"]), &load_options("dir=out:rw"), &ProjectFiles::new(root.path(), false));
        let folder = root.path().join("out").canonicalize().unwrap();
        let opened = Some(std::fs::File::open(&folder).unwrap().into());
        assert_eq!(grants.dirs, [FolderGrant { name: "./out".to_owned(), folder, writable: true, opened }]);
    }

    #[test]
    fn denies_writing_to_the_project_and_the_cache() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("cache")).unwrap();
        let own = faults(&dirs(&[".:rw"]), "dir=.:rw", root.path());
        assert_eq!(own, ["grant a folder inside it"]);
        let cache = Some(CacheDir::at(root.path().join("cache")));
        let load_options = LoadOptions { cache, ..load_options("dir=cache:rw") };
        for (asked, says) in [("./cache:rw", "write to gpux's cache"), ("./cache", "read gpux's cache")] {
            let (_, faults) = resolve(&dirs(&[asked]), &load_options, &ProjectFiles::new(root.path(), false));
            assert!(faults[0].message.contains(says), "{faults:?}");
        }
    }

    #[test]
    fn denies_writing_to_a_pipeline_of_the_store() {
        let store = tempfile::tempdir().unwrap();
        let root = store.path().join("pipelines").join("0a".repeat(32));
        std::fs::create_dir_all(root.join("out")).unwrap();
        let files = ProjectFiles::new(&root, false);
        let (_, faults) = resolve(&dirs(&["./out:rw"]), &load_options("dir=out:rw"), &files);
        assert!(faults[0].message.contains("pipeline in the store"), "{faults:?}");
        assert!(resolve(&dirs(&["./out"]), &load_options("dir=out"), &files).1.is_empty());
    }

    #[test]
    fn rejects_variables_not_allowed() {
        let grant =
            WasmGrant { env: vec![spanned("PATH".to_owned()), spanned("A=B".to_owned())], ..WasmGrant::default() };
        let root = Path::new(".");
        assert_eq!(
            faults(&grant, "clock", root),
            ["whoever runs the pipeline can pass `--allow env=PATH`", "`A=B` cannot be the name of a variable"]
        );
        let (grants, _) = resolve(&grant, &load_options("env=PATH"), &ProjectFiles::new(root, false));
        assert_eq!(grants.env.len(), 1);
        assert_eq!(grants.env[0].value, std::env::var("PATH").ok());
    }

    #[test]
    fn hint_lists_every_missing_grant() {
        let grant = WasmGrant { wasi: vec![spanned(Wasi::Random)], ..dirs(&["./assets"]) };
        let missing = [Capability::Models, Capability::Clock];
        assert_eq!(
            remedy(&grant, &missing, &load_options("random"), &["rec"]),
            "add `grant: { models: [rec], wasi: [random, clock], dirs: [./assets:ro] }` to this step in gpux.yml, and \
             run with `--allow clock`"
        );
    }
}
