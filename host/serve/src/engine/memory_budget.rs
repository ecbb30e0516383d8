//! The room for bodies: what those of all requests may hold together, and of that, those of one key.

use super::memory_permit::{GRAIN, Share};
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::engine::metrics::{Metrics, PipelineMetrics, Refused};
use crate::engine::request_context::Context;
use crate::engine::tenant::{Exceeded, Hold, Tenant};
use crate::{Refusal, ServeError, Settings};

/// What the bodies of all requests may hold together, from the first byte that is read to the end of
/// the turn.
#[derive(Clone, Debug)]
pub(crate) struct Bodies(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    all: Arc<Semaphore>,
    /// how much there is of it
    most: usize,
    /// how much of it those of one key may hold
    of_key: usize,
    /// what counts refusals of requests of which no pipeline is known
    none: Arc<PipelineMetrics>,
}

impl Bodies {
    pub(crate) fn new(settings: &Settings, metrics: &Metrics) -> Self {
        let all = (settings.body_memory / GRAIN).clamp(1, Semaphore::MAX_PERMITS);
        // Half of it leaves room for others, but one body must find room.
        let of_key = (all / 2).max(settings.max_body.div_ceil(GRAIN));
        let semaphore = Arc::new(Semaphore::new(all));
        Self(Arc::new(Bounds { all: semaphore, most: all, of_key, none: metrics.none().clone() }))
    }

    /// The room that the request has which the calling task works for.
    pub(crate) fn room(&self) -> Room {
        self.room_of(Context::current())
    }

    /// The room that the request of this context has.
    pub(crate) fn room_of(&self, context: Option<Arc<Context>>) -> Room {
        Room { bounds: self.0.clone(), context, held: 0 }
    }
}

/// The room that one request has.
#[derive(Clone)]
pub(crate) struct Room {
    bounds: Arc<Bounds>,
    context: Option<Arc<Context>>,
    /// the bytes that the request holds already, and goes on holding
    held: usize,
}

impl Room {
    /// The same room for a request that holds so many bytes of it already.
    pub(crate) fn holding(self, bytes: usize) -> Self {
        Self { held: bytes, ..self }
    }

    fn tenant(&self) -> Option<&Tenant> {
        self.context.as_ref().and_then(|context| context.tenant())
    }

    /// As many bytes as one request may hold, however few others there are.
    pub(crate) fn most(&self) -> usize {
        let most = if self.tenant().is_some() { self.bounds.of_key.min(self.bounds.most) } else { self.bounds.most };
        most * GRAIN
    }

    /// So many bytes in grains, unless the request could never hold them: to try again would not help.
    fn grains(&self, bytes: usize) -> Result<usize, ServeError> {
        let (most, grains) = (self.most(), bytes.div_ceil(GRAIN));
        let all = grains.saturating_add(self.held.div_ceil(GRAIN));
        if all > most / GRAIN {
            let needed = self.held.saturating_add(bytes);
            return Err(ServeError::NeverFits { needed, most });
        }
        Ok(grains)
    }

    /// Fails if so many bytes would find no room now. Takes none, so that those who ask at once do not
    /// refuse each other.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), ServeError> {
        let grains = self.grains(bytes)?;
        let fits = self.tenant().map(|tenant| tenant.fits(grains, self.bounds.of_key)).transpose();
        fits.map_err(|exceeded| self.exceeded(&exceeded))?;
        if grains > self.bounds.all.available_permits() { Err(self.full()) } else { Ok(()) }
    }

    /// The share of so many bytes.
    pub(crate) fn share(&self, bytes: usize) -> Result<Share, ServeError> {
        let grains = self.grains(bytes)?;
        let of_key = self.hold(grains)?;
        let permits = u32::try_from(grains).unwrap_or(u32::MAX);
        let of_all = self.bounds.all.clone().try_acquire_many_owned(permits).map_err(|_| self.full())?;
        Ok(Share::new(of_all, of_key))
    }

    fn hold(&self, grains: usize) -> Result<Option<Hold>, ServeError> {
        let hold = self.tenant().map(|tenant| tenant.hold(grains, self.bounds.of_key)).transpose();
        hold.map_err(|exceeded| self.exceeded(&exceeded))
    }

    fn exceeded(&self, exceeded: &Exceeded) -> ServeError {
        self.count(exceeded.into());
        exceeded.clone().into()
    }

    fn full(&self) -> ServeError {
        let refusal = Refusal::Memory;
        self.count((&refusal).into());
        refusal.into()
    }

    fn count(&self, refused: Refused) {
        if let Some(context) = &self.context {
            context.pipeline().unwrap_or(&self.bounds.none).refused(refused);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Priority;
    use crate::engine::tenant::TenantOptions;

    fn refused(share: Result<Share, ServeError>) -> u16 {
        share.unwrap_err().status().as_u16()
    }

    /// The room that requests with a key of this name have.
    fn rooms(bodies: &Bodies) -> impl Fn(&str) -> Room {
        let tenant = |name: &str| {
            let options = TenantOptions {
                name: name.to_owned(),
                pipelines: None,
                priority: Priority::Normal,
                admin: false,
                rate: None,
                concurrency: None,
            };
            Arc::new(Tenant::new(options, None))
        };
        let tenants = [tenant("alice"), tenant("bob")];
        move |name: &str| {
            let tenant = tenants.iter().find(|tenant| tenant.name() == name).unwrap();
            Arc::new(Context::new("7", Some(tenant.enter().unwrap()), None)).within(|| bodies.room())
        }
    }

    #[test]
    fn those_who_ask_at_once_do_not_refuse_each_other() {
        let bodies =
            Bodies::new(&Settings { max_body: 1 << 20, body_memory: 2 << 20, ..Settings::default() }, &Metrics::new());
        let room = rooms(&bodies)("alice");
        let begin = std::sync::Barrier::new(2);
        let ask = || {
            begin.wait();
            (0..200_000).filter(|_| room.check(1 << 20).is_err()).count()
        };
        let others = std::thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|one| one.join().unwrap()));
        assert_eq!(others, [0, 0]);
        assert_eq!(refused(room.share((1 << 20) + 1)), 413);
    }

    #[test]
    fn rejects_for_good_what_can_never_fit() {
        let settings = Settings { max_body: 1 << 20, body_memory: 2 << 20, ..Settings::default() };
        let bodies = Bodies::new(&settings, &Metrics::new());
        let held = bodies.room().share(1 << 20).unwrap();
        assert_eq!(refused(bodies.room().share(2 << 20)), 503, "it would fit alone");
        assert_eq!(refused(bodies.room().share((2 << 20) + 1)), 413);
        assert_eq!(refused(bodies.room().holding(1 << 20).share((1 << 20) + 1)), 413, "with what it holds");
        assert_eq!(bodies.room().check((2 << 20) + 1).unwrap_err().status(), 413);
        let room = rooms(&bodies)("alice");
        assert_eq!(refused(room.share((1 << 20) + 1)), 413, "a key has half");
        drop(held);
        bodies.room().share(2 << 20).unwrap();
    }

    #[test]
    fn a_share_that_shrinks_leaves_room() {
        let settings = Settings { max_body: 1 << 20, body_memory: 4 << 20, ..Settings::default() };
        let bodies = Bodies::new(&settings, &Metrics::new());
        let room = rooms(&bodies)("alice");
        let mut share = room.share(2 << 20).unwrap();
        assert_eq!(refused(room.share(1)), 429);
        share.shrink(1 << 20);
        assert_eq!(share.bytes(), 1 << 20);
        share.shrink(2 << 20);
        assert_eq!(share.bytes(), 1 << 20, "it does not grow");
        let other = room.share(1 << 20).unwrap();
        drop((share, other));
        bodies.room().share(4 << 20).unwrap();
        room.share(2 << 20).unwrap();
    }

    #[test]
    fn the_requests_of_one_key_leave_room_for_others() {
        let bodies =
            Bodies::new(&Settings { max_body: 1 << 20, body_memory: 10 << 20, ..Settings::default() }, &Metrics::new());
        let room = rooms(&bodies);
        let mut first = room("alice").share(3 << 20).unwrap();
        first.merge(room("alice").share(1 << 20).unwrap());
        let second = room("alice").share(1 << 20).unwrap();
        assert_eq!(refused(room("alice").share(1)), 429);
        room("alice").check(1).unwrap_err();
        let other = room("bob").share(5 << 20).unwrap();
        drop((first, second));
        let again = room("alice").share(5 << 20).unwrap();
        // Whose requests have no key are held by what all have alone.
        assert_eq!(refused(bodies.room().share(1)), 503);
        drop((other, again));
        bodies.room().share(10 << 20).unwrap();
        // A key may always have one body.
        let small =
            Bodies::new(&Settings { max_body: 1 << 20, body_memory: 1 << 20, ..Settings::default() }, &Metrics::new());
        assert_eq!(small.0.of_key, 1 << 10);
    }
}
