//! `gpux completions`: what shells complete gpux's command line with.

use clap::Args;
use clap_complete::Shell;

use crate::exit::Exit;

/// Print a script that completes gpux's commands and flags in a shell: for bash,
/// `gpux completions bash > ~/.local/share/bash-completion/completions/gpux`
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn main(arguments: &Arguments, mut program: clap::Command) -> Exit {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    crate::printer(false, false).print_result(String::from_utf8_lossy(&script).trim_end())
}
