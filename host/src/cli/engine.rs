//! `gpux engine`: which inference engines there are, and how to get one.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value as Json, json};

use super::exit::Exit;
use super::operator::OperatorArguments;
use super::printer::{Printer, pretty, table};
use crate::assemble::{self, Operator};
use crate::inference::{self, Embedded, Engine as _, Found, InstallRequest, ProbeReport};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the engines of this machine, their providers, and which would be used
    List {
        /// As JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        operator: OperatorArguments,
    },
    /// Install ONNX Runtime into gpux's cache, with your own package client (pip, else npm)
    Install {
        /// Which build
        #[arg(value_enum, default_value_t = Build::Cpu)]
        build: Build,

        /// Use only what is downloaded already
        #[arg(long)]
        offline: bool,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// A build of ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Build {
    /// for every machine
    Cpu,
}

pub(super) fn main(arguments: &Arguments) -> Exit {
    match &arguments.command {
        Command::List { json, operator } => list(&operator.operator(), super::printer(*json, false)),
        Command::Install { build: Build::Cpu, offline, json } => install(*offline, super::printer(*json, false)),
    }
}
