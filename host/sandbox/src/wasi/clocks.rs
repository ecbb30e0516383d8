//! `wasi:clocks`, and `wasi:io/poll`: the only place where a guest waits.

use std::time::{Duration, Instant, SystemTime};

use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::bindings::sync::io::poll;

use super::super::failure::StopReason;
use super::super::state::State;
use gpux_core::StepFailure;

/// An event that a guest may wait for.
#[derive(Clone, Copy)]
pub(super) enum Pollable {
    /// a stream, which is always ready: the host's side of it never waits
    Now,
    /// a moment
    At(Instant),
    /// a moment so far away that it cannot be counted
    Never,
}

impl Pollable {
    fn after(duration: Duration) -> Self {
        Instant::now().checked_add(duration).map_or(Self::Never, Self::At)
    }

    fn is_ready(self, now: Instant) -> bool {
        match self {
            Self::Now => true,
            Self::At(moment) => now >= moment,
            Self::Never => false,
        }
    }
}

impl State {
    fn monotonic(&mut self) -> u64 {
        u64::try_from(self.wasi().begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait(&mut self, wakes: &[Pollable]) -> Result<(), StopReason> {
        let now = Instant::now();
        if wakes.iter().any(|wake| wake.is_ready(now)) {
            return self.time_budget.check();
        }
        let moment = |wake: &Pollable| if let Pollable::At(moment) = wake { Some(*moment) } else { None };
        self.sleep_until(wakes.iter().filter_map(moment).min())
    }
}

impl monotonic_clock::Host for State {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.monotonic())
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let left = when.saturating_sub(self.monotonic());
        self.subscribe_duration(left)
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        Ok(self.insert_resource(Pollable::after(Duration::from_nanos(duration)))?)
    }
}

impl wall_clock::Host for State {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        // A clock set before 1970 shows 1970.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl poll::Host for State {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        if pollables.is_empty() {
            return Err(
                StopReason(StepFailure::Failed("it waits for nothing: `poll` of an empty list".to_owned())).into()
            );
        }
        self.time_budget.admit(pollables.len().saturating_mul(size_of::<Pollable>()))?;
        let wakes: Vec<Pollable> =
            pollables.iter().map(|pollable| self.resource_mut(pollable).copied()).collect::<Result<_, StopReason>>()?;
        self.wait(&wakes)?;
        let now = Instant::now();
        Ok((0..).zip(&wakes).filter(|(_, wake)| wake.is_ready(now)).map(|(index, _)| index).collect())
    }
}

impl poll::HostPollable for State {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        Ok(self.resource_mut::<Pollable, _>(&pollable)?.is_ready(Instant::now()))
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let wake = *self.resource_mut::<Pollable, _>(&pollable)?;
        Ok(self.wait(&[wake])?)
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.remove_resource::<Pollable, _>(&pollable)?;
        Ok(())
    }
}
