//! `wasi:random`.

use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};
use wasmtime_wasi::random::WasiRandomCtx;

use super::super::state::State;

/// Bytes drawn between two looks at the clock.
const PIECE: u64 = 64 << 10;

impl State {
    /// `len` bytes from `draw`: no more than one call may copy and fit in the guest's memory, and none
    /// past its deadline.
    fn draw(
        &mut self,
        len: u64,
        draw: impl Fn(&mut WasiRandomCtx, u64) -> wasmtime::Result<Vec<u8>>,
    ) -> wasmtime::Result<Vec<u8>> {
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        self.meter.check_fits(size)?;
        self.time_budget.admit(size)?;
        self.check_copy_size(size)?;
        let mut drawn = Vec::with_capacity(size);
        let mut left = len;
        while left > 0 {
            let piece = left.min(PIECE);
            drawn.extend(draw(self.wasi().random(), piece)?);
            self.time_budget.check()?;
            left -= piece;
        }
        Ok(drawn)
    }
}

impl random::Host for State {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.draw(len, random::Host::get_random_bytes)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.wasi().random().get_random_u64()
    }
}

impl insecure::Host for State {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.draw(len, insecure::Host::get_insecure_random_bytes)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.wasi().random().get_insecure_random_u64()
    }
}

impl insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        self.wasi().random().insecure_seed()
    }
}
