//! Whom a guest works for, as far as the models that it runs must know.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::{Machine, Place};
use crate::pipeline::{Context, Waits};

/// What a guest's request hands on to its models.
#[derive(Default)]
pub(super) struct Caller {
    priority: i32,
    waits: Option<Arc<dyn Waits>>,
}

impl Caller {
    /// The caller of a guest that runs in this machine.
    pub(super) fn new(context: &Context, machine: &Arc<Machine>) -> Self {
        let in_place = |waits: &Arc<dyn Waits>| {
            let (waits, machine) = (waits.clone(), machine.clone());
            Arc::new(InPlace { waits, machine, place: Mutex::default() }) as Arc<dyn Waits>
        };
        Self { priority: context.priority, waits: context.waits.as_ref().map(in_place) }
    }

    /// What a model is told.
    pub(super) fn context(&self) -> Context {
        Context { priority: self.priority, waits: self.waits.clone(), ..Context::default() }
    }
}

/// Says that the guest waits for its model if the pool has a place for one that does: whoever runs in
/// its stead may need a sandbox as well, and must find one.
struct InPlace {
    waits: Arc<dyn Waits>,
    machine: Arc<Machine>,
    place: Mutex<Option<Place>>,
}

impl InPlace {
    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waits for InPlace {
    fn begin(&self) {
        let place = self.machine.place();
        if place.is_some() {
            *self.place() = place;
            self.waits.begin();
        }
    }

    fn end(&self, for_it: Duration) {
        let place = self.place().take();
        if place.is_some() {
            self.waits.end(for_it);
        }
    }
}
