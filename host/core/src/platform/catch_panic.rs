//! Panics inside a library become errors, and leave nothing on stderr.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `work`; a panic in it is given back as its message. What `work` was changing must be
/// thrown away then.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                usual(info);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        shorten(&text.unwrap_or_else(|| "no message".to_owned()))
    })
}

/// A library's message without the dumps that some carry.
pub fn shorten(message: &str) -> String {
    const LIMIT: usize = 600;
    let message = message.trim();
    match message.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests")]
mod tests {
    use super::catch_panic;

    #[test]
    fn returns_panic_messages_as_errors() {
        assert_eq!(catch_panic(|| 1), Ok(1));
        assert_eq!(catch_panic(|| panic!("axis {}", 3)), Err::<(), _>("axis 3".to_owned()));
    }
}
