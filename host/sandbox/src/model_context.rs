//! Whom a guest works for, as far as the models that it runs must know.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::{Machine, Place};
use gpux_core::{Context, Waits};

/// What a guest's request hands on to its models.
#[derive(Clone, Default)]
pub(super) struct Caller {
    priority: i32,
    waits: Option<Arc<dyn Waits>>,
}

impl Caller {
    /// The caller of a guest that runs in this machine.
    pub(super) fn new(context: &Context, machine: &Arc<Machine>) -> Self {
        let in_place = |waits: &Arc<dyn Waits>| {
            let (waits, machine) = (waits.clone(), machine.clone());
            let place = Mutex::new((None, false));
            Arc::new(InPlace { waits, machine, place }) as Arc<dyn Waits>
        };
        Self { priority: context.priority, waits: context.waits.as_ref().map(in_place) }
    }

    /// What a model is told.
    pub(super) fn context(&self) -> Context {
        Context { priority: self.priority, waits: self.waits.clone(), ..Context::default() }
    }
}

/// Says that the guest waits for its model if the pool has a place for one that does: whoever runs in
/// its stead may need a sandbox as well, and must find one. The place is kept from then on: whoever runs
/// in its stead does not stop when this guest goes on.
struct InPlace {
    waits: Arc<dyn Waits>,
    machine: Arc<Machine>,
    /// and whether it was said
    place: Mutex<(Option<Place>, bool)>,
}

impl InPlace {
    fn place(&self) -> MutexGuard<'_, (Option<Place>, bool)> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waits for InPlace {
    fn begin(&self) {
        let mut place = self.place();
        let (kept, said) = &mut *place;
        *kept = kept.take().or_else(|| self.machine.place());
        *said = kept.is_some();
        if *said {
            drop(place);
            self.waits.begin();
        }
    }

    fn end(&self, for_it: Duration) {
        let said = std::mem::take(&mut self.place().1);
        if said {
            self.waits.end(for_it);
        }
    }
}
