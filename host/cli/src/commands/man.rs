//! `gpux man`: manual pages.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::exit::Exit;

/// Write gpux's manual pages, one for each command: `gpux man ~/.local/share/man/man1`, then `man gpux-run`
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder; it is made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn main(arguments: &Arguments, program: clap::Command) -> Exit {
    let folder = &arguments.folder;
    let program = program.disable_help_subcommand(true);
    match fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(program, folder)) {
        Ok(()) => Exit::Done,
        Err(error) => {
            let message = format!("cannot write to `{}`: {error}", folder.display());
            crate::printer(false, false).fail("OutputError", &message, Exit::Failed)
        }
    }
}
