//! Golden cases: each `.toml` in `tests/cases/run` is a command line, with its expected output
//! beside it. `TRYCMD=overwrite cargo test` writes the current output.

#[test]
fn prints_the_expected_output_of_its_cases() {
    // Without its two files a case would check nothing.
    let folder = crate::digits::root().join("tests/cases/run");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            for printed in ["stdout", "stderr"] {
                assert!(path.with_extension(printed).is_file(), "{} has no .{printed}", path.display());
            }
        }
    }
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cases-cache");
    trycmd::TestCases::new()
        .register_bin("gpux", std::path::Path::new(env!("CARGO_BIN_EXE_gpux")))
        .env("GPUX_CACHE_DIR", cache)
        .env("GPUX_STORE", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-store"))
        .env("NO_COLOR", "1")
        .case(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/run/*.toml"));
}
