//! The words of an error about WASI 0.1: which functions a module imports, what calls them, what to do.

/// At most this many functions are named.
const NAMED: usize = 6;

/// Functions by the beginning of their names: what in a source brings them in, and what a step does instead.
const CAUSES: [(&[&str], &str); 6] = [
    (
        &["fd_write", "fd_pwrite"],
        "printing (`printf`, `puts`, `perror`, `assert`) imports `fd_write`: write log lines instead, in C with \
         `gpux_log(GPUX_LOG_LEVEL_INFO, …)`, and texts with `snprintf`",
    ),
    (&["path_", "fd_prestat_", "fd_read"], "opening files imports `path_open`: a step takes bytes as an input instead"),
    (&["clock_", "poll_"], "asking for the time imports `clock_time_get`: pass it as an input"),
    (&["random_"], "drawing random numbers imports `random_get`: take a seed as an option"),
    (&["environ_", "args_"], "`getenv` and `main` import `environ_get` and `args_get`: take an option instead"),
    (&["proc_exit"], "`exit` imports `proc_exit`: return an error instead"),
];

/// The imports, their causes and the ways out.
pub(super) fn causes(imports: &[String]) -> String {
    let named: Vec<_> = imports.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let mut text = format!("it imports {}", named.join(", "));
    if imports.len() > NAMED {
        text += &format!(" and {} more", imports.len() - NAMED);
    }
    let is_imported =
        |beginnings: &[&str]| imports.iter().any(|name| beginnings.iter().any(|start| name.starts_with(start)));
    for (_, cause) in CAUSES.iter().filter(|(beginnings, _)| is_imported(beginnings)) {
        text += "; ";
        text += cause;
    }
    text + "; or build for WASI 0.2 (wasm32-wasip2), and grant what it needs"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_imports_and_their_causes() {
        let imports = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let text = causes(&imports(&["fd_close", "fd_seek", "fd_write"]));
        assert!(text.starts_with("it imports `fd_close`, `fd_seek`, `fd_write`; printing (`printf`"), "{text}");
        assert!(!text.contains("path_open"), "{text}");
        let many: Vec<_> = (0..9).map(|number| format!("path_{number}")).collect();
        assert!(causes(&many).contains("`path_5` and 3 more; opening files"), "{}", causes(&many));
    }
}
