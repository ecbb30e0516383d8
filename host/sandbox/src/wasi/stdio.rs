//! `wasi:cli`: the start environment of a program, which components of language runtimes import.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr, terminal_stdin,
    terminal_stdout,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use super::super::failure::StopReason;
use super::super::state::State;
use super::streams::{InputStream, OutputStream};
use gpux_core::StepFailure;

impl environment::Host for State {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        let given = self.capabilities.grants.env.iter();
        Ok(given.filter_map(|env| Some((env.name.clone(), env.value.clone()?))).collect())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}

fn exits(code: u8) -> wasmtime::Error {
    StopReason(StepFailure::Failed(format!(
        "it called `exit` with code {code}; a step returns a result or an error instead"
    )))
    .into()
}

impl exit::Host for State {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        Err(exits(u8::from(status.is_err())))
    }

    fn exit_with_code(&mut self, code: u8) -> wasmtime::Result<()> {
        Err(exits(code))
    }
}

impl stdin::Host for State {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        Ok(self.insert_resource(InputStream::Empty)?)
    }
}

impl stdout::Host for State {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        Ok(self.insert_resource(OutputStream::Log("stdout"))?)
    }
}

impl stderr::Host for State {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        Ok(self.insert_resource(OutputStream::Log("stderr"))?)
    }
}

impl terminal_input::Host for State {}
impl terminal_output::Host for State {}

impl terminal_input::HostTerminalInput for State {
    fn drop(&mut self, _: Resource<terminal_input::TerminalInput>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl terminal_output::HostTerminalOutput for State {
    fn drop(&mut self, _: Resource<terminal_output::TerminalOutput>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl terminal_stdin::Host for State {
    fn get_terminal_stdin(&mut self) -> wasmtime::Result<Option<Resource<terminal_input::TerminalInput>>> {
        Ok(None)
    }
}

impl terminal_stdout::Host for State {
    fn get_terminal_stdout(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_stderr::Host for State {
    fn get_terminal_stderr(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}
