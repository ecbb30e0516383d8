//! Where free sessions lie. A thread finds first the one that it had last: the processor's core that it runs on
//! still has in its cache what belongs to it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use super::slot::Slot;

thread_local! {
    /// The place that the calling thread took from last, on any shelf that has a choice.
    static LAST: Cell<usize> = const { Cell::new(0) };
    /// The place that it is to take from meanwhile.
    static TURN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs models each on the session whose turn it is, if that is free: turn by turn, on all that they have.
pub fn in_turn<T>(turn: usize, work: impl FnOnce() -> T) -> T {
    TURN.set(Some(turn));
    let result = work();
    TURN.set(None);
    result
}

/// As many places as there may be sessions; each is the place of one. Taking and giving back take no lock.
pub(super) struct Shelf(Box<[Place]>);

struct Place {
    slot: ArrayQueue<Slot>,
    /// whether what lies here is only the place of a session, to be made by whoever takes it
    unmade: AtomicBool,
}

impl Shelf {
    /// With so many places (at least one), all empty.
    pub(super) fn new(places: usize) -> Self {
        let place = |_| Place { slot: ArrayQueue::new(1), unmade: AtomicBool::new(false) };
        Self((0..places.max(1)).map(place).collect())
    }

    /// How many places there are.
    pub(super) fn capacity(&self) -> usize {
        self.0.len()
    }

    /// How many of them have something.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|place| place.slot.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|place| place.slot.is_empty())
    }

    /// Takes the session that the calling thread had last, or else another. One that is yet to be made is taken
    /// where there is no other.
    pub(super) fn pop(&self) -> Option<Slot> {
        let made = |place: &Place| if place.unmade.load(Ordering::Relaxed) { None } else { place.slot.pop() };
        self.find(made).or_else(|| self.find(|place| place.slot.pop()))
    }

    fn find(&self, take: impl Fn(&Place) -> Option<Slot>) -> Option<Slot> {
        let (count, turn) = (self.0.len(), TURN.get());
        let first = turn.unwrap_or_else(|| LAST.get()) % count;
        (first..count).chain(0..first).find_map(|index| {
            let slot = take(&self.0[index])?;
            if count > 1 && turn.is_none() {
                LAST.set(index);
            }
            Some(slot)
        })
    }

    /// Takes what lies in this place.
    pub(super) fn pop_at(&self, index: usize) -> Option<Slot> {
        self.0.get(index)?.slot.pop()
    }

    /// Puts a slot in its place, where nothing else lies.
    pub(super) fn push(&self, slot: Slot) {
        if let Some(place) = self.0.get(slot.place) {
            place.unmade.store(slot.session.is_none(), Ordering::Relaxed);
            let _ = place.slot.push(slot);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Barrier;

    use super::super::slot::Width;
    use super::*;

    /// A shelf with so many places, in each of which lies a slot.
    fn shelf(places: usize) -> Shelf {
        let shelf = Shelf::new(places);
        (0..places).for_each(|place| shelf.push(Slot::empty(Width::Wide, place)));
        shelf
    }

    #[test]
    fn all_of_it_is_found() {
        let shelf = shelf(3);
        assert_eq!((shelf.len(), shelf.capacity(), shelf.is_empty()), (3, 3, false));
        let mut taken: Vec<_> = std::iter::from_fn(|| shelf.pop()).map(|slot| slot.place).collect();
        taken.sort_unstable();
        assert_eq!((taken, shelf.len(), shelf.is_empty()), (vec![0, 1, 2], 0, true));
        shelf.push(Slot::empty(Width::Wide, 1));
        assert!(shelf.pop_at(0).is_none() && shelf.pop_at(1).is_some() && shelf.pop_at(1).is_none());
    }

    #[test]
    fn threads_that_take_at_once_keep_to_what_they_had() {
        let (shelf, both) = (shelf(2), Barrier::new(2));
        let each = || {
            both.wait();
            let had = shelf.pop().unwrap();
            both.wait();
            let place = had.place;
            shelf.push(had);
            both.wait();
            for _ in 0..1000 {
                // Each has its own, which the other does not look for.
                let next = shelf.pop().unwrap();
                assert_eq!(next.place, place);
                shelf.push(next);
            }
            place
        };
        std::thread::scope(|scope| {
            let [one, other] = [scope.spawn(each), scope.spawn(each)].map(|thread| thread.join().unwrap());
            assert_ne!(one, other);
        });
    }

    #[test]
    fn each_has_its_turn_however_many_there_are_of_others() {
        let shelves = [2, 3, 1].map(shelf);
        let taken = |shelf: &Shelf| {
            let slot = shelf.pop().unwrap();
            let place = slot.place;
            shelf.push(slot);
            place
        };
        let turns: Vec<_> = (0..3).map(|turn| in_turn(turn, || shelves.each_ref().map(taken))).collect();
        assert_eq!(turns, [[0, 0, 0], [1, 1, 0], [0, 2, 0]]);
        assert_eq!([taken(&shelves[1]), taken(&shelves[1])], [0, 0], "what was taken in turn is nobody's last");
    }
}
