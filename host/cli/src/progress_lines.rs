//! The lines at the bottom of the terminal that say what goes on.

use std::sync::LazyLock;

use indicatif::MultiProgress;

/// The lines that are shown; none unless standard error is a terminal that can erase them.
pub(super) static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Writes to the terminal with the lines out of the way; they come back by themselves.
pub(super) fn without_lines<T>(write: impl FnOnce() -> T) -> T {
    LINES.suspend(write)
}
