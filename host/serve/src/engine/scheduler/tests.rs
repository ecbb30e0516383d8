#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::*;

const ROOM: LaneOptions = LaneOptions { workers: 1, concurrency: 16, queue: 16, is_isolated: false };

/// A job that answers its request.
fn answering(run: impl FnOnce(Result<Arc<dyn WaitObserver>, Rejection>) + Send + 'static) -> Job {
    Box::new(move |slot| {
        run(slot);
        JobOutcome::Answered
    })
}

/// A job that sends its name and then waits for the gate.
fn job(name: &'static str, said: &Sender<&'static str>, gate: &Arc<Barrier>) -> Job {
    let (said, gate) = (said.clone(), gate.clone());
    answering(move |_| {
        said.send(name).unwrap();
        gate.wait();
    })
}

fn quick(name: &'static str, said: &Sender<&'static str>) -> Job {
    let said = said.clone();
    answering(move |_| said.send(name).unwrap())
}

fn submit(lane: &Lane, job: Job) -> Result<QueuePosition, Rejection> {
    lane.submit(None, 0, Client::Unknown, Arc::default(), job)
}

fn next(heard: &Receiver<&'static str>) -> &'static str {
    heard.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn priority_precedes_age() {
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
fn full_queue_rejects_at_once() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(LaneOptions { workers: 1, concurrency: 1, queue: 1, is_isolated: false });
    submit(&lane, job("runs", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "runs");
    submit(&lane, quick("waits", &said)).unwrap();
    assert_eq!(lane.load().waiting, 1);
    assert!(matches!(submit(&lane, quick("refused", &said)), Err(Rejection::Full { waiting: 1, .. })));
    gate.wait();
    assert_eq!(next(&heard), "waits");
}

#[test]
fn cancelled_request_frees_its_place() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(LaneOptions { workers: 1, concurrency: 1, queue: 1, is_isolated: false });
    let first = submit(&lane, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    let position = submit(&lane, quick("taken back", &said)).unwrap();
    assert!(submit(&lane, quick("refused", &said)).is_err());
    lane.cancel(position);
    assert_eq!(lane.load().waiting, 0);
    submit(&lane, quick("second", &said)).unwrap();
    // `cancel` does not affect running or completed requests.
    lane.cancel(first);
    lane.cancel(position);
    gate.wait();
    assert_eq!(next(&heard), "second");
}

#[test]
fn idle_lane_runs_when_all_workers_are_busy() {
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
fn waiting_request_frees_its_worker() {
    let (said, heard) = channel();
    let (waits, runs) = (said.clone(), said.clone());
    let gate = Arc::new(Barrier::new(2));
    let opens = gate.clone();
    let lane = Scheduler::new(1).lane(ROOM);
    let waiting = answering(move |slot| {
        let slot = slot.unwrap();
        slot.begin();
        gate.wait();
        slot.end(Duration::ZERO);
        waits.send("waited").unwrap();
    });
    submit(&lane, waiting).unwrap();
    let running = answering(move |_| {
        runs.send("ran").unwrap();
        opens.wait();
    });
    submit(&lane, running).unwrap();
    assert_eq!([next(&heard), next(&heard)], ["ran", "waited"]);
}

#[test]
fn skips_cancelled_and_late_requests() {
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
    let after = heard.recv_timeout(Duration::from_secs(20));
    assert_eq!(after, Err(RecvTimeoutError::Disconnected), "all others were dropped");
}

const EACH: Duration = Duration::from_millis(100);

/// A lane that has completed ten requests, one after the other, and the time then; one request waits.
fn lane_with_history() -> (LaneState, Instant) {
    let mut lane = LaneState::new(ROOM);
    let mut now = Instant::now();
    (0..11).for_each(|number| push(&mut lane, number, now));
    for _ in 0..10 {
        let Started { position, cost, .. } = lane.pop().unwrap();
        now += EACH;
        lane.done(position, cost, Some(Completion { work_time: EACH, is_in_time: true }), now);
    }
    (lane, now)
}

fn push(lane: &mut LaneState, number: u64, now: Instant) {
    let request = Waiting { job: answering(drop), deadline: None, cancelled: Arc::default() };
    lane.push(request, QueuePosition { priority: 0, client: Client::Unknown, number }, now);
}

#[test]
fn rejects_requests_that_would_miss_their_deadline() {
    let (mut lane, now) = lane_with_history();
    let admit = |lane: &LaneState, priority, milliseconds| {
        let deadline = Some(now + Duration::from_millis(milliseconds));
        lane.admit(priority, Client::Unknown, deadline, now).map(drop)
    };
    // One waits before it: two times 100 ms.
    assert!(matches!(admit(&lane, 0, 200), Err(Rejection::Late { .. })));
    assert_eq!(admit(&lane, 0, 250), Ok(()));
    assert_eq!(admit(&lane, 1, 1), Ok(()), "those that wait are less urgent");
    // It counts once it has started, too: it may wait within for a batch.
    lane.pop().unwrap();
    assert!(matches!(admit(&lane, 0, 200), Err(Rejection::Late { .. })));
    assert_eq!(admit(&lane, 0, 250), Ok(()));
    (12..15).for_each(|number| push(&mut lane, number, now));
    lane.pop().unwrap();
    assert!(matches!(admit(&lane, 0, 500), Err(Rejection::Late { .. })), "two have started, two wait");
    assert_eq!(admit(&lane, 0, 600), Ok(()));
}

#[test]
fn late_answers_are_no_capacity() {
    let (said, heard) = channel();
    for (outcome, is_admitted) in [(JobOutcome::Answered, true), (JobOutcome::TimedOut, false)] {
        let lane = Scheduler::new(1).lane(ROOM);
        submit(&lane, Box::new(move |_| outcome)).unwrap();
        while lane.load().running + lane.load().waiting > 0 {
            std::thread::yield_now();
        }
        let gate = Arc::new(Barrier::new(2));
        submit(&lane, job("runs", &said, &gate)).unwrap();
        assert_eq!(next(&heard), "runs");
        let deadline = Instant::now() + Duration::from_hours(1);
        assert_eq!(lane.check(Some(deadline), 0, Client::Unknown).is_ok(), is_admitted, "{outcome:?}");
        gate.wait();
    }
}

#[test]
fn admits_a_request_when_nothing_runs() {
    let (mut lane, now) = lane_with_history();
    let Started { position, cost, .. } = lane.pop().unwrap();
    lane.done(position, cost, None, now);
    assert_eq!(lane.admit(0, Client::Unknown, Some(now + Duration::from_millis(1)), now), Ok(None));
}

#[test]
fn requests_need_time_only_if_others_wait() {
    let (mut lane, now) = lane_with_history();
    push(&mut lane, 12, now);
    let time_needed = lane.pop().unwrap().time_needed;
    assert!((EACH..EACH * 3 / 2).contains(&time_needed), "{time_needed:?}");
    assert_eq!(lane.pop().unwrap().time_needed, Duration::ZERO, "it may try");
}

#[test]
fn dropping_a_lane_rejects_its_requests() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let scheduler = Scheduler::new(1);
    let lane = scheduler.lane(ROOM);
    submit(&lane, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    let dropped = Arc::new(AtomicUsize::new(0));
    let holds = dropped.clone();
    submit(&lane, answering(move |_| drop(holds))).unwrap();
    drop(lane);
    assert_eq!(Arc::strong_count(&dropped), 1);
    gate.wait();
    let other = scheduler.lane(ROOM);
    submit(&other, quick("other", &said)).unwrap();
    assert_eq!(next(&heard), "other");
}

#[test]
fn lanes_share_worker_time() {
    let (said, heard) = channel();
    let gate = Arc::new(Barrier::new(2));
    let scheduler = Scheduler::new(1);
    let (flood, other) = (scheduler.lane(ROOM), scheduler.lane(ROOM));
    submit(&flood, job("first", &said, &gate)).unwrap();
    assert_eq!(next(&heard), "first");
    for _ in 0..10 {
        let said = said.clone();
        let busy = answering(move |_| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(2) {}
            said.send("flood").unwrap();
        });
        submit(&flood, busy).unwrap();
    }
    submit(&other, quick("other", &said)).unwrap();
    gate.wait();
    let order: Vec<_> = (0..11).map(|_| next(&heard)).collect();
    let position = order.iter().position(|name| *name == "other").unwrap();
    assert!(position <= 1, "{order:?}");
}

#[test]
fn waiting_does_not_count_as_work() {
    let (said, heard) = channel();
    let lane = Scheduler::new(1).lane(ROOM);
    let start = Instant::now();
    let waiting = answering(move |slot| {
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
fn new_lane_has_no_credit() {
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
fn batched_work_is_charged_to_the_lane() {
    const MODEL: Duration = Duration::from_secs(1000);
    let lane = Scheduler::new(1).lane(ROOM);
    let start = Instant::now();
    for _ in 0..2 {
        let in_a_batch = |slot: Result<Arc<dyn WaitObserver>, Rejection>| {
            let slot = slot.unwrap();
            slot.begin();
            slot.end(MODEL);
        };
        submit(&lane, answering(in_a_batch)).unwrap();
    }
    while lane.load().running + lane.load().waiting > 0 {
        std::thread::yield_now();
    }
    assert!((2 * MODEL..=2 * MODEL + start.elapsed()).contains(&used(&lane)), "{:?}", used(&lane));
}

fn used(lane: &Lane) -> Duration {
    lane.shared.lock().lanes[&lane.id].used()
}

/// A job that sends its name and whether it ran or was evicted.
fn public_message(name: &'static str, said: &Sender<(&'static str, bool)>) -> Job {
    let said = said.clone();
    answering(move |slot| said.send((name, slot.is_ok())).unwrap())
}

#[test]
fn full_queue_evicts_lower_priorities() {
    let (said, heard) = channel();
    let (first, began) = channel();
    let gate = Arc::new(Barrier::new(2));
    let lane = Scheduler::new(1).lane(LaneOptions { workers: 1, concurrency: 1, queue: 3, is_isolated: false });
    submit(&lane, job("first", &first, &gate)).unwrap();
    assert_eq!(next(&began), "first");
    let submit =
        |name, priority, client| lane.submit(None, priority, client, Arc::default(), public_message(name, &said));
    let [flood, polite] = [Client::Key(1), Client::Key(2)];
    submit("low", -1, flood).unwrap();
    submit("normal", 0, flood).unwrap();
    submit("normal, last", 0, flood).unwrap();
    assert!(matches!(submit("low, too many", -1, flood), Err(Rejection::Full { waiting: 3, .. })));
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
fn starts_workers_up_front() {
    let scheduler = Scheduler::new(3);
    scheduler.start_workers().unwrap();
    scheduler.start_workers().unwrap();
    assert_eq!(scheduler.shared.lock().threads, 3);
}
