//! The golden cases of `tests/cases/config`: `right/NAME` has a file and its parsed spec,
//! `wrong/NAME` a file and its diagnostics. `GPUX_BLESS=1` writes the expectations.
#![allow(clippy::unwrap_used, clippy::panic, clippy::format_collect, reason = "tests")]

use std::path::{Path, PathBuf};

use super::*;

fn cases(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/config").join(kind);
    let mut cases: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn variables() -> Variables<'static> {
    Variables::new(["MODEL_DIR".to_owned()], |name| match name {
        "GPUX_PORT" => Some("9000".to_owned()),
        "MODEL_DIR" => Some("./models".to_owned()),
        "HOME" => Some("/home/ada".to_owned()),
        _ => None,
    })
}

/// The case's file, under the name that its author would see.
fn read(case: &Path) -> Result<(Document, Spec), Box<ConfigurationError>> {
    let file = find(".", case).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    parse(file.file_name().unwrap().to_str().unwrap(), text, &variables(), &accept_any_step)
}

fn expect(path: &Path, actual: &str) -> Option<String> {
    if std::env::var_os("GPUX_BLESS").is_some() {
        std::fs::write(path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    (expected != actual).then(|| format!("{}\n--- expected\n{expected}\n--- actual\n{actual}", path.display()))
}

#[test]
fn reports_every_mistake_of_wrong_files() {
    let cases = cases("wrong");
    assert!(cases.len() >= 40, "{} cases", cases.len());
    let failures: Vec<_> = cases
        .iter()
        .filter_map(|case| match read(case) {
            Ok(_) => Some(format!("{} is accepted", case.display())),
            Err(error) => expect(&case.join("expected.txt"), &error.render()),
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn reads_right_files() {
    let cases = cases("right");
    assert!(cases.len() >= 15, "{} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        match read(case) {
            Err(error) => failures.push(format!("{} is refused\n{}", case.display(), error.render())),
            Ok((_, spec)) => {
                let json = spec.to_json();
                let text = format!("{}\n", serde_json::to_string_pretty(&json).unwrap());
                failures.extend(expect(&case.join("expected.json"), &text));
                let yaml = spec.to_yaml().unwrap();
                match parse("again", yaml.clone(), &Variables::empty(), &accept_any_step) {
                    Ok((_, again)) => assert_eq!(again.to_json(), json, "{}: {yaml}", case.display()),
                    Err(error) => failures.push(format!("{} does not read back\n{}", case.display(), error.render())),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn bounds_reading_of_hostile_files() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let indented: String = (0..1000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for text in [
        deep("[", "]"),
        deep("{a: ", "}"),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        indented,
        "a: [".repeat(1000),
        format!("a: {}", "x".repeat(2 << 20)),
        format!("a: \"{}", "x".repeat(500_000)),
        "&a ".repeat(10_000),
        (0..100_000).map(|key| format!("{key}: 1\n")).collect(),
        format!("x: &x [{}]\ny: [{}]", "1,".repeat(1000), "*x,".repeat(1000)),
        format!("name: a\nversion: 1\nmodel: m\n{}", (0..5000).map(|key| format!("k{key}: 1\n")).collect::<String>()),
        (0..60).map(|level| format!("&a{level} [")).collect::<String>() + &"1,".repeat(20_000) + &"]".repeat(60),
        format!("a: {{ <<: [{}] }}", "{},".repeat(40_000)),
        "\u{feff}".to_owned(),
        "\0".to_owned(),
        "%YAML 1.2\n".repeat(10),
        "a: !!binary x\nb: !x y".to_owned(),
        "? [a]\n: b\n? {c: d}\n: e".to_owned(),
        "<<: 5\na: <<".to_owned(),
        "a: 1\n---\nb: 2".to_owned(),
        "é: \u{2028}ü\n\t".to_owned(),
    ] {
        let start = gpux_core::threads::processor_time();
        let error = parse("hostile", text.clone(), &Variables::empty(), &accept_any_step).unwrap_err();
        assert!(!error.diagnostics().is_empty());
        assert!(error.diagnostics().len() <= 50);
        assert!(error.render().len() < 40_000, "{}", error.render().len());
        assert!(error.to_json()["errors"].is_array());
        let taken = gpux_core::threads::processor_time().saturating_sub(start);
        assert!(taken.as_secs() < 20, "{}", &text[..20.min(text.len())]);
    }
}

proptest::proptest! {
    /// Cutting and splicing real files never breaks the reader, and every place it names is real.
    #[test]
    fn mangled_files_are_read_or_refused(
        text in proptest::sample::select(&[
            include_str!("../../../tests/cases/config/right/digits/gpux.yml"),
            include_str!("../../../tests/cases/config/right/for-each/gpux.yml"),
        ][..]),
        from in 0_usize..2000,
        to in 0_usize..2000,
        insert in "[-:{}\\[\\]&*!'\"$ \t\nab1.]{0,6}",
    ) {
        let boundary = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let (from, to) = (boundary(from.min(to)), boundary(from.max(to)));
        let mangled = format!("{}{insert}{}", &text[..from], &text[to..]);
        if let Err(error) = parse("mangled", mangled.clone(), &Variables::empty(), &accept_any_step) {
            for diagnostic in error.diagnostics() {
                proptest::prop_assert!(mangled.get(diagnostic.span.clone()).is_some(), "{diagnostic:?}");
            }
            error.render();
        }
    }
}

#[test]
fn json_schema_accepts_the_right_files() {
    let generated = json_schema(&[]);
    assert!(generated.pointer("/properties/pipeline/items/oneOf").is_some());
    // Built-in steps come from their own room; here each takes anything.
    let anything = schemars::Schema::default();
    let tags = [
        "decode-image",
        "resize",
        "letterbox",
        "normalize",
        "softmax",
        "top-k",
        "tokenize",
        "decode-audio",
        "resample",
        "mel-spectrogram",
        "nms",
        "argmax",
    ];
    let steps: Vec<_> = tags.iter().map(|name| StepSchema { name, summary: "a step", schema: &anything }).collect();
    let generated = json_schema(&steps);
    for case in cases("right") {
        let (_, spec) = read(&case).unwrap_or_else(|error| panic!("{}", error.render()));
        let (document, _) = parse("again", spec.to_yaml().unwrap(), &Variables::empty(), &accept_any_step).unwrap();
        assert_eq!(check(&document.root, "file", &generated), vec![], "{}", case.display());
    }
}
