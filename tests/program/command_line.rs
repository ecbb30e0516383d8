//! What is generated from the command line's own description: completions and manual pages.

use crate::digits::{gpux, stdout};

#[test]
fn completions_have_the_commands_of_users_alone() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&gpux(&["completions", shell]));
        assert!(script.contains("verify") && script.contains("engine-library"), "{shell}");
        assert!(!script.contains("__vet-model") && !script.contains("vet__model"), "{shell}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert!(gpux(&["man", pages.to_str().unwrap()]).status.success());
    let page = |name: &str| std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
    assert!(page("gpux").contains("gpux\\-serve(1)"));
    assert!(page("gpux-serve").contains("max\\-queue"));
    assert!(page("gpux-engine-install").contains("gpux\\-engine\\-install"));
    let names = std::fs::read_dir(&pages).unwrap().map(|page| page.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("__")));
}
