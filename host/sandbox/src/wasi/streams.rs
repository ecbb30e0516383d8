//! `wasi:io/streams` and `wasi:io/error`: files, and the standard streams.

use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::sync::io::streams;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, FsError, StreamError, StreamResult};

use super::super::failure::StopReason;
use super::super::state::State;
use super::clocks::Pollable;

/// The most bytes that one call reads or writes: bounds how far a slow disk delays it past the deadline.
pub(super) const PIECE: usize = 64 << 10;

/// Bytes that go to the log between two looks at the clock.
const LOG_PIECE: usize = 4 << 10;

/// A source that a guest reads from.
pub(super) enum InputStream {
    /// standard input
    Empty,
    /// a file, from here on
    File { file: Resource<Descriptor>, position: u64 },
}

/// A sink that a guest writes to.
pub(super) enum OutputStream {
    /// a standard stream: its lines go to the log under this name
    Log(&'static str),
    /// a file, from here on; at its end if `None`
    File { file: Resource<Descriptor>, position: Option<u64> },
}

fn stop(stop: StopReason) -> StreamError {
    StreamError::Trap(stop.into())
}

/// An error of the file system is the guest's to handle; a limit that stopped the guest is not.
fn refused(error: FsError) -> StreamError {
    match error.downcast() {
        Ok(code) => StreamError::LastOperationFailed(code.into()),
        Err(trap) => StreamError::Trap(trap),
    }
}

impl State {
    fn read_stream(&mut self, stream: &Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        let (file, at) = match self.resource_mut::<InputStream, _>(stream).map_err(stop)? {
            InputStream::Empty => return Err(StreamError::Closed),
            InputStream::File { file, position } => (Resource::new_borrow(file.rep()), *position),
        };
        if len == 0 {
            return Ok(Vec::new());
        }
        let (data, end) = self.read_file(file, len, at).map_err(refused)?;
        if end && data.is_empty() {
            return Err(StreamError::Closed);
        }
        if let InputStream::File { position, .. } = self.resource_mut::<InputStream, _>(stream).map_err(stop)? {
            *position = at.saturating_add(data.len() as u64);
        }
        Ok(data)
    }

    fn write_stream(&mut self, stream: &Resource<DynOutputStream>, data: &[u8]) -> StreamResult<()> {
        let (file, at) = match self.resource_mut::<OutputStream, _>(stream).map_err(stop)? {
            OutputStream::Log(name) => {
                let name = *name;
                // A megabyte of line ends is a million lines.
                for piece in data.chunks(LOG_PIECE) {
                    self.time_budget.check().map_err(stop)?;
                    self.log.write(name, piece);
                }
                return Ok(());
            }
            OutputStream::File { file, position } => (file.rep(), *position),
        };
        let file = || Resource::new_borrow(file);
        let mut position = match at {
            Some(position) => position,
            None => self.file_size(file()).map_err(refused)?,
        };
        let mut left = data;
        while !left.is_empty() {
            let written = self.write_file(file(), left, position).map_err(refused)?;
            left = left.get(written..).unwrap_or_default();
            position = position.saturating_add(written as u64);
        }
        if let (Some(_), OutputStream::File { position: place, .. }) = (at, self.resource_mut(stream).map_err(stop)?) {
            *place = Some(position);
        }
        Ok(())
    }

    fn write_zeros(&mut self, stream: &Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        let mut left = usize::try_from(len).unwrap_or(usize::MAX);
        while left > 0 {
            let piece = left.min(PIECE);
            self.write_stream(stream, &vec![0; piece])?;
            left -= piece;
        }
        Ok(())
    }
}

/// `wasi:io/error`, which has no bindings of its own.
pub(super) fn add_error(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut interface = linker.instance("wasi:io/error@0.2.0")?;
    interface.resource("error", ResourceType::host::<wasmtime::Error>(), |mut store, rep| {
        store.data_mut().remove_resource::<wasmtime::Error, wasmtime::Error>(&Resource::new_own(rep))?;
        Ok(())
    })?;
    interface.func_wrap("[method]error.to-debug-string", |mut store, (error,): (Resource<wasmtime::Error>,)| {
        Ok((store.data_mut().resource_mut::<wasmtime::Error, _>(&error)?.to_string(),))
    })
}

impl streams::Host for State {
    fn convert_stream_error(&mut self, error: StreamError) -> wasmtime::Result<streams::StreamError> {
        match error {
            StreamError::Closed => Ok(streams::StreamError::Closed),
            StreamError::LastOperationFailed(error) => {
                Ok(streams::StreamError::LastOperationFailed(self.insert_resource::<wasmtime::Error, _>(error)?))
            }
            StreamError::Trap(error) => Err(error),
        }
    }
}

impl streams::HostInputStream for State {
    fn read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        self.read_stream(&stream, len)
    }

    fn blocking_read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        self.read_stream(&stream, len)
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        Ok(self.read_stream(&stream, len)?.len() as u64)
    }

    fn blocking_skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        Ok(self.read_stream(&stream, len)?.len() as u64)
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        self.resource_mut::<InputStream, _>(&stream)?;
        Ok(self.insert_resource(Pollable::Now)?)
    }

    fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        if let InputStream::File { file, .. } = self.remove_resource::<InputStream, _>(&stream)? {
            self.close(&file)?;
        }
        Ok(())
    }
}

impl streams::HostOutputStream for State {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        self.resource_mut::<OutputStream, _>(&stream).map_err(stop)?;
        Ok(PIECE as u64)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, data: Vec<u8>) -> StreamResult<()> {
        self.write_stream(&stream, &data)
    }

    fn blocking_write_and_flush(&mut self, stream: Resource<DynOutputStream>, data: Vec<u8>) -> StreamResult<()> {
        self.write_stream(&stream, &data)
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        self.resource_mut::<OutputStream, _>(&stream).map_err(stop)?;
        Ok(())
    }

    fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        self.flush(stream)
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        self.resource_mut::<OutputStream, _>(&stream)?;
        Ok(self.insert_resource(Pollable::Now)?)
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        self.write_zeros(&stream, len)
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        self.write_zeros(&stream, len)
    }

    fn splice(
        &mut self,
        stream: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        let data = self.read_stream(&from, len)?;
        self.write_stream(&stream, &data)?;
        Ok(data.len() as u64)
    }

    fn blocking_splice(
        &mut self,
        stream: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        self.splice(stream, from, len)
    }

    fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        if let OutputStream::File { file, .. } = self.remove_resource::<OutputStream, _>(&stream)? {
            self.close(&file)?;
        }
        Ok(())
    }
}
