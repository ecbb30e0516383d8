//! Lines for whoever runs the pipeline: they come with the step's error and with a trace.
//!
//! ```
//! use gpux_step::log;
//!
//! log::info!("kept {} of {} boxes", 3, 20);
//! log::warn!("the image has no colours");
//! ```

use std::fmt;

use crate::host;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the author.
    Debug,
    /// What happened.
    Info,
    /// Something to look at.
    Warn,
    /// Why it fails.
    Error,
}

/// Writes one line. The newest lines are kept, up to the step's limit `log` in bytes.
pub fn write(level: Level, line: &str) {
    host::log(level, line);
}

#[doc(hidden)]
pub fn format(level: Level, arguments: fmt::Arguments<'_>) {
    match arguments.as_str() {
        Some(line) => write(level, line),
        None => write(level, &arguments.to_string()),
    }
}

/// Writes a line for the author; arguments as in `format!`.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_debug {
    ($($argument:tt)+) => {
        $crate::log::format($crate::log::Level::Debug, ::core::format_args!($($argument)+))
    };
}

/// Writes a line about what happened; arguments as in `format!`.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_info {
    ($($argument:tt)+) => {
        $crate::log::format($crate::log::Level::Info, ::core::format_args!($($argument)+))
    };
}

/// Writes a line to look at; arguments as in `format!`.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_warn {
    ($($argument:tt)+) => {
        $crate::log::format($crate::log::Level::Warn, ::core::format_args!($($argument)+))
    };
}

/// Writes a line about why it fails; arguments as in `format!`.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_error {
    ($($argument:tt)+) => {
        $crate::log::format($crate::log::Level::Error, ::core::format_args!($($argument)+))
    };
}

#[doc(inline)]
pub use crate::{__log_debug as debug, __log_error as error, __log_info as info, __log_warn as warn};
