//! The `gpux` program: one file a command, one printer.

mod build_log;
mod child_commands;
mod commands;
mod exit;
mod guard;
mod hub_pipeline;
mod input;
mod interrupt;
mod load_arguments;
mod measure;
mod nodes;
mod precision;
mod printer;
mod progress;
mod progress_lines;
mod server_log;
mod shape_arguments;

use std::ffi::OsString;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use gpux_core::process_exit::exit;

use commands::{
    build, bundle, cache, completions, engine, inspect, man, new, pull, run, schema, serve, steps, store, test, verify,
};
use exit::Exit;
use printer::{LogLevel, Printer};

/// Exit code after a panic, as of every Rust program, but without the exit handlers of native
/// libraries, whose threads may be at work.
const PANICKED: u8 = 101;

/// Runs an ONNX model together with the code around it
#[derive(Debug, Parser)]
#[command(
    name = "gpux",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Begin with `gpux new pipeline NAME`, or with a model: `gpux inspect model.onnx`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a folder for a pipeline or a step
    New(new::Arguments),
    /// Make a pipeline of a model of the Hugging Face hub, or of a folder that is laid out like one
    Pull(pull::Arguments),
    /// Run a pipeline on input
    Run(run::Arguments),
    /// Serve pipelines on HTTP
    Serve(Box<serve::Arguments>),
    /// Check a pipeline and make it ready to run, or build a step from its sources
    Build(build::Arguments),
    /// Put a pipeline with all its files into one file
    Bundle(bundle::Arguments),
    /// Run the golden cases of a step or a pipeline
    Test(test::Arguments),
    /// Explain a pipeline, a model, a component, or this machine
    Inspect(inspect::Arguments),
    /// Compare what a pipeline gives on several providers or engines
    Verify(verify::Arguments),
    /// List and install inference engines
    Engine(engine::Arguments),
    /// Keep pipelines on this machine by name, list and remove them
    Store(store::Arguments),
    /// Show and remove what gpux keeps on disk
    Cache(cache::Arguments),
    /// List the built-in steps, or explain one
    Steps(steps::Arguments),
    /// Print the JSON Schema of gpux.yml, for editors
    Schema(schema::Arguments),
    /// Print what a shell completes gpux's commands and flags with
    Completions(completions::Arguments),
    /// Write gpux's manual pages
    Man(man::Arguments),
    #[command(flatten)]
    Child(child_commands::Command),
}

#[cfg(unix)]
impl Command {
    /// For commands that run models and built-in steps in their own process: whether errors are JSON.
    const fn runs_native_code(&self) -> Option<bool> {
        match self {
            Self::Pull(arguments) => Some(arguments.json),
            Self::Run(arguments) => Some(arguments.json),
            Self::Build(arguments) => Some(arguments.json),
            Self::Bundle(arguments) if arguments.with_engine => Some(arguments.json),
            Self::Test(arguments) => Some(arguments.json),
            Self::Verify(arguments) => Some(arguments.json),
            _ => None,
        }
    }
}

/// Parses the command line, runs the command, and ends the process.
fn run() -> ! {
    let parsed = program()
        .try_get_matches_from(expand_serve_help(std::env::args_os()))
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results; everything else is a usage error.
            let status = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let _ = with_suggestions(error).print();
            exit(status.code());
        }
    };
    #[cfg(unix)]
    if let Some(json) = arguments.command.runs_native_code()
        && let Some(code) = guard::run_in_child(json)
    {
        exit(code);
    }
    keep_freed_memory();
    let command = AssertUnwindSafe(|| run_command(arguments.command));
    let code = catch_unwind(command).map_or(PANICKED, Exit::code);
    // Flushes a partial line. A failure here cannot be reported.
    let _ = std::io::stdout().flush();
    exit(code)
}

/// The error with suggestions for a misspelled command: clap's, but none of those that gpux runs itself; else the
/// nearest of our own.
fn with_suggestions(mut error: clap::Error) -> clap::Error {
    let similar = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(similar)) => similar,
        _ => Vec::new(),
    };
    let mut visible: Vec<_> = similar.into_iter().filter(|name| !name.starts_with("__")).collect();
    if visible.is_empty()
        && let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand)
    {
        let commands = visible_program();
        let names = commands.get_subcommands().map(clap::Command::get_name);
        visible.extend(gpux_core::closest(written, names).map(str::to_owned));
    }
    if !visible.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(visible));
    }
    error
}

/// The command line, with `--help` for an `-h` of `serve` that lacks the host.
fn expand_serve_help(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = given.collect();
    if words.get(1).is_some_and(|command| command == "serve") {
        for index in 2..words.len() {
            let next = words.get(index + 1);
            if words[index] == "-h" && next.is_none_or(|next| next.as_encoded_bytes().starts_with(b"-")) {
                words[index] = "--help".into();
            }
        }
    }
    words
}

/// The command line as clap reads it.
fn program() -> clap::Command {
    // `-p` and `-h` of `serve` are port and host.
    Arguments::command().mut_subcommand("serve", |serve| serve.mut_arg("provider", |arg| arg.short(None)))
}

/// The same without the commands that gpux runs itself.
fn visible_program() -> clap::Command {
    let all = program();
    let visible = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let about = all.get_about().cloned().unwrap_or_default();
    clap::Command::new("gpux").version(env!("CARGO_PKG_VERSION")).about(about).subcommands(visible.collect::<Vec<_>>())
}

fn run_command(command: Command) -> Exit {
    match command {
        Command::New(arguments) => new::main(&arguments),
        Command::Pull(arguments) => pull::main(&arguments),
        Command::Run(arguments) => run::main(arguments),
        Command::Serve(arguments) => serve::main(*arguments),
        Command::Build(arguments) => build::main(&arguments),
        Command::Bundle(arguments) => bundle::main(&arguments),
        Command::Test(arguments) => test::main(&arguments),
        Command::Inspect(arguments) => inspect::main(&arguments),
        Command::Verify(arguments) => verify::main(&arguments),
        Command::Engine(arguments) => engine::main(&arguments),
        Command::Store(arguments) => store::main(&arguments),
        Command::Cache(arguments) => cache::main(&arguments),
        Command::Steps(arguments) => steps::main(&arguments),
        Command::Schema(arguments) => schema::main(&arguments),
        Command::Completions(arguments) => completions::main(&arguments, visible_program()),
        Command::Man(arguments) => man::main(&arguments, visible_program()),
        Command::Child(command) => child_commands::main(command),
    }
}

/// Has the C library keep freed memory for what comes next. It goes by the largest block that it has
/// mapped and seen freed: twice as much stays at the end of its heap. Until then it gives back what
/// the pictures of one run took, and the next run pays for it page by page, a third of its time.
fn keep_freed_memory() {
    const LARGEST: usize = 8 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGEST)));
}

/// The printer that a command's flags ask for.
fn printer(json: bool, verbose: bool) -> Printer {
    let printer = quiet_printer(json, verbose);
    if let Err(name) = LogLevel::from_environment()
        && !verbose
    {
        printer.warning(&format!("GPUX_LOG is `{name}`, and none of `error`, `warn`, `info` and `debug`"));
    }
    printer
}

/// The same, without a warning about `GPUX_LOG`.
fn quiet_printer(json: bool, verbose: bool) -> Printer {
    let level = if verbose { LogLevel::Debug } else { LogLevel::from_environment().unwrap_or_default() };
    Printer { json, level }
}

/// Keeps ONNX Runtime from reporting to its makers, if set before its library is loaded. Since
/// 1.29 its official builds report from Linux and macOS too; the call that turns this off needs an
/// environment, and making one has already written an identifier to disk and queued the first
/// report. See docs/decisions/009-no-telemetry.md.
const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

fn main() {
    // A value from the environment wins.
    if std::env::var_os(NO_TELEMETRY).is_none() {
        #[expect(unsafe_code, reason = "the library reads it from the environment and nowhere else")]
        // SAFETY: this is the first thing that the program does; no other thread exists.
        unsafe {
            std::env::set_var(NO_TELEMETRY, "1");
        }
    }
    run()
}
