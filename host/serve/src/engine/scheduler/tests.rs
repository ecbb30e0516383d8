#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::*;

const ROOM: LaneOptions = LaneOptions { concurrency: 16, queue: 16 };

/// A job that says its name and then waits for the gate.
fn job(name: &'static str, said: &Sender<&'static str>, gate: &Arc<Barrier>) -> Job {
    let (said, gate) = (said.clone(), gate.clone());
    Box::new(move |_| {
        said.send(name).unwrap();
        gate.wait();
    })
}

fn quick(name: &'static str, said: &Sender<&'static str>) -> Job {
    let said = said.clone();
    Box::new(move |_| said.send(name).unwrap())
}

fn submit(lane: &Lane, job: Job) -> Result<Place, Refusal> {
    lane.submit(None, 0, Client::Unknown, Arc::default(), job)
}

fn next(heard: &Receiver<&'static str>) -> &'static str {
    heard.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn priority_comes_before_age() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(ROOM);
    submit(&lane, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    for (name, priority) in [("low", -1), ("normal", 0), ("high", 1), ("also high", 1)] {
        lane.submit(None, priority, Client::Unknown, Arc::default(), quick(name, &said)).unwrap();
    }
    gate.wait();
    assert_eq!([0; 4].map(|_| next(&heard)), ["high", "also high", "normal", "low"]);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(LaneOptions { concurrency: 1, queue: 1 });
    submit(&lane, job("runs", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "runs");
    submit(&lane, quick("waits", &said)).unwrap();
    assert_eq!(lane.load().waiting, 1);
    assert!(matches!(submit(&lane, quick("refused", &said)), Err(Refusal::Full { waiting: 1, .. })));
    gate.wait();
    assert_eq!(next(&heard), "waits");
}

#[test]
fn who_is_taken_back_keeps_nobody_out() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(LaneOptions { concurrency: 1, queue: 1 });
    let first = submit(&lane, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    let place = submit(&lane, quick("taken back", &said)).unwrap();
    assert!(submit(&lane, quick("refused", &said)).is_err());
    lane.take_back(place);
    assert_eq!(lane.load().waiting, 0);
    submit(&lane, quick("second", &said)).unwrap();
    // What runs, and what is gone, stays so.
    lane.take_back(first);
    lane.take_back(place);
    gate.wait();
    assert_eq!(next(&heard), "second");
}

#[test]
fn a_lane_whose_neighbour_has_all_workers_still_runs() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(3));
    let scheduler = Scheduler::new(2);
    let (slow, other) = (scheduler.lane(ROOM), scheduler.lane(ROOM));
    submit(&slow, job("slow", &said, &gate)).unwrap();
    submit(&slow, job("slow", &said, &gate)).unwrap();
    assert_eq!([next(&heard), next(&heard)], ["slow", "slow"]);
    submit(&slow, quick("slow, third", &said)).unwrap();
    submit(&other, quick("other", &said)).unwrap();
    assert_eq!(next(&heard), "other");
    gate.wait();
    assert_eq!(next(&heard), "slow, third");
}

#[test]
fn while_one_waits_for_others_another_runs() {
    let (said, heard) = channel();
    let (waits, runs) = (said.clone(), said.clone());
    let gate = Arc::new(Barrier::new(2));
    let opens = gate.clone();
    let lane = Scheduler::new(1).lane(ROOM);
    let waiting: Job = Box::new(move |slot| {
        let slot = slot.unwrap();
        slot.begin();
        gate.wait();
        slot.end(Duration::ZERO);
        waits.send("waited").unwrap();
    });
    submit(&lane, waiting).unwrap();
    let running: Job = Box::new(move |_| {
        runs.send("ran").unwrap();
        opens.wait();
    });
    submit(&lane, running).unwrap();
    assert_eq!([next(&heard), next(&heard)], ["ran", "waited"]);
}

#[test]
fn who_was_cancelled_or_is_late_does_not_run() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(ROOM);
    submit(&lane, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    let cancelled = Arc::new(AtomicBool::new(false));
    lane.submit(None, 0, Client::Unknown, cancelled.clone(), quick("cancelled", &said)).unwrap();
    lane.submit(Some(Instant::now()), 0, Client::Unknown, Arc::default(), quick("late", &said)).unwrap();
    submit(&lane, quick("last", &said)).unwrap();
    cancelled.store(true, Ordering::Relaxed);
    gate.wait();
    assert_eq!(next(&heard), "last");
    drop(said);
    assert!(heard.recv_timeout(Duration::from_secs(20)).is_err(), "all others were dropped");
}

#[test]
fn a_request_that_would_be_late_is_refused_as_it_comes() {
    let mut lane = LaneState::new(ROOM);
    let start = Instant::now();
    let waiting = || Waiting { job: Box::new(|_| {}), deadline: None, cancelled: Arc::default() };
    // Ten requests, one after the other, 100 ms each.
    for number in 0..11 {
        lane.push(waiting(), Place { priority: 0, client: Client::Unknown, number });
    }
    for number in 1..=10 {
        let Started { place, cost, .. } = lane.pop().unwrap();
        let each = Duration::from_millis(100);
        lane.done(place, cost, Some(Time { whole: each, at_work: each }), start + Duration::from_millis(100) * number);
    }
    let now = start + Duration::from_secs(1);
    let within = |milliseconds| Some(now + Duration::from_millis(milliseconds));
    let admit = |lane: &LaneState, priority, milliseconds| {
        lane.admit(priority, Client::Unknown, within(milliseconds), now).map(drop)
    };
    assert!(matches!(admit(&lane, 0, 200), Err(Refusal::Late { .. })));
    assert_eq!(admit(&lane, 0, 500), Ok(()));
    assert_eq!(admit(&lane, 1, 1), Ok(()), "those that wait are less urgent");
    lane.pop().unwrap();
    assert_eq!(admit(&lane, 0, 1), Ok(()), "nobody waits: it may try");
}

#[test]
fn a_dropped_lane_lets_its_requests_go() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let scheduler = Scheduler::new(1);
    let lane = scheduler.lane(ROOM);
    submit(&lane, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    let dropped = Arc::new(AtomicUsize::new(0));
    let holds = dropped.clone();
    submit(&lane, Box::new(move |_| drop(holds))).unwrap();
    drop(lane);
    assert_eq!(Arc::strong_count(&dropped), 1);
    gate.wait();
    let other = scheduler.lane(ROOM);
    submit(&other, quick("other", &said)).unwrap();
    assert_eq!(next(&heard), "other");
}

#[test]
fn lanes_share_the_time() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let scheduler = Scheduler::new(1);
    let (flood, other) = (scheduler.lane(ROOM), scheduler.lane(ROOM));
    submit(&flood, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    for _ in 0..10 {
        let said = said.clone();
        let busy: Job = Box::new(move |_| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(2) {}
            said.send("flood").unwrap();
        });
        submit(&flood, busy).unwrap();
    }
    submit(&other, quick("other", &said)).unwrap();
    gate.wait();
    let order: Vec<_> = (0..11).map(|_| next(&heard)).collect();
    let place = order.iter().position(|name| *name == "other").unwrap();
    assert!(place <= 1, "{order:?}");
}

#[test]
fn waiting_for_others_is_no_work() {
    let (said, heard) = channel();
    let lane = Scheduler::new(1).lane(ROOM);
    let start = Instant::now();
    let waiting: Job = Box::new(move |slot| {
        let slot = slot.unwrap();
        slot.begin();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        let waited = begun.elapsed();
        slot.end(Duration::ZERO);
        said.send(waited).unwrap();
    });
    submit(&lane, waiting).unwrap();
    let waited = heard.recv_timeout(Duration::from_secs(20)).unwrap();
    while lane.load().running > 0 {
        std::thread::yield_now();
    }
    let whole = start.elapsed();
    let used = used(&lane);
    assert!(used + waited <= whole, "{used:?} of {whole:?}, of which it waited {waited:?}");
}

#[test]
fn a_new_lane_has_no_claim_on_the_time_before() {
    let scheduler = Scheduler::new(1);
    let old = scheduler.lane(ROOM);
    let mut state = old.shared.lock();
    state.lanes.get_mut(&old.id).unwrap().catch_up(Duration::from_secs(1000));
    drop(state);
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    submit(&old, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    let new = scheduler.lane(ROOM);
    submit(&new, quick("new", &said)).unwrap();
    assert_eq!(next(&heard), "new");
    let used = new.shared.lock().lanes[&new.id].used();
    assert!(used >= Duration::from_secs(1000), "{used:?}");
    gate.wait();
}

#[test]
fn what_others_work_for_a_request_is_its_lanes() {
    const MODEL: Duration = Duration::from_secs(1000);
    let lane = Scheduler::new(1).lane(ROOM);
    let start = Instant::now();
    for _ in 0..2 {
        let in_a_batch = |slot: Result<Arc<Slot>, Refusal>| {
            let slot = slot.unwrap();
            slot.begin();
            slot.end(MODEL);
        };
        submit(&lane, Box::new(in_a_batch)).unwrap();
    }
    while lane.load().running + lane.load().waiting > 0 {
        std::thread::yield_now();
    }
    assert!((2 * MODEL..=2 * MODEL + start.elapsed()).contains(&used(&lane)), "{:?}", used(&lane));
}

fn used(lane: &Lane) -> Duration {
    lane.shared.lock().lanes[&lane.id].used()
}

/// A job that says its name in its turn, or as it loses its place.
fn told(name: &'static str, said: &Sender<(&'static str, bool)>) -> Job {
    let said = said.clone();
    Box::new(move |slot| said.send((name, slot.is_ok())).unwrap())
}

#[test]
fn a_full_queue_evicts_what_matters_less() {
    let (said, heard) = channel();
    let (first, began) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(LaneOptions { concurrency: 1, queue: 3 });
    submit(&lane, job("first", &first, &gate)).unwrap();
    assert_eq!(next(&began), "first");
    let submit = |name, priority, client| lane.submit(None, priority, client, Arc::default(), told(name, &said));
    let [flood, polite] = [Client::Key(1), Client::Key(2)];
    submit("low", -1, flood).unwrap();
    submit("normal", 0, flood).unwrap();
    submit("normal, last", 0, flood).unwrap();
    assert!(matches!(submit("low, too many", -1, flood), Err(Refusal::Full { waiting: 3, .. })));
    submit("normal, polite", 0, polite).unwrap();
    assert_eq!(heard.try_recv(), Ok(("low", false)), "the least urgent gives way");
    submit("high", 1, flood).unwrap();
    assert_eq!(heard.try_recv(), Ok(("normal, last", false)), "then the last of whoever has the most");
    assert!(submit("normal, too many", 0, flood).is_err());
    assert!(submit("polite, too many", 0, polite).is_err(), "it would have more than the other");
    gate.wait();
    let order = [0; 3].map(|_| heard.recv_timeout(Duration::from_secs(20)).unwrap());
    assert_eq!(order, [("high", true), ("normal", true), ("normal, polite", true)]);
}

#[test]
fn workers_are_there_before_the_first_request() {
    let scheduler = Scheduler::new(3);
    scheduler.start_workers().unwrap();
    scheduler.start_workers().unwrap();
    assert_eq!(scheduler.shared.lock().threads, 3);
}
