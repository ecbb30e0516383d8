//! `gpux schema`: what editors need to complete gpux.yml.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Exit;
use crate::printer::{Printer, pretty};

/// Print the JSON Schema of gpux.yml. With an editor that speaks YAML schemas, write
/// `# yaml-language-server: $schema=gpux.schema.json` on the first line of gpux.yml.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write it to this file instead of standard output
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(false, false);
    let schema = gpux::json_schema();
    save_or_print(printer, arguments.output.as_deref(), &pretty(schema.as_value()))
}

/// Writes `text` and a line end to the file, or to standard output without one.
pub(crate) fn save_or_print(printer: Printer, path: Option<&std::path::Path>, text: &str) -> Exit {
    match path {
        None => printer.print_result(text),
        Some(path) => match std::fs::write(path, format!("{text}\n")) {
            Ok(()) => Exit::Done,
            Err(error) => {
                let message = format!("cannot write `{}`: {error}", path.display());
                printer.fail("OutputError", &message, Exit::Failed)
            }
        },
    }
}
