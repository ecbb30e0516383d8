//! Every attack hits its limit, by name, and the next request is served.

use std::time::{Duration, Instant};

use super::*;
use gpux_core::threads::processor_time;

/// An attack on another limit reaches it, however slow the machine is.
fn small() -> Limits {
    Limits { time: Duration::from_mins(1), memory: 8 << 20, result: 2 << 20, log: 2 << 10, ..Limits::default() }
}

fn hurried() -> Limits {
    Limits { time: Duration::from_millis(200), ..small() }
}

/// What `attack` comes to under small limits; then checks that the same sandbox serves another.
fn strike(attack: &str) -> (Result<Value, StepFailure>, Context) {
    let step = load(attack, small()).unwrap_or_else(|error| panic!("{attack}: {error}"));
    let mut context = Context::default();
    let outcome = run_in(&step, "x", &mut context);
    let peaceful = load("", small()).unwrap();
    assert_eq!(run(&peaceful, "x"), Ok("visit 1".into()), "after {attack}");
    (outcome, context)
}

fn limit(attack: &str) -> (String, String) {
    match strike(attack).0 {
        Err(StepFailure::Limit(limit)) => (limit.limit.into_owned(), limit.value),
        other => panic!("{attack}: {other:?}"),
    }
}

fn failed(attack: &str) -> String {
    match strike(attack).0 {
        Err(StepFailure::Failed(why)) => why,
        other => panic!("{attack}: {other:?}"),
    }
}

fn refused(attack: &str) -> String {
    match strike(attack).0 {
        Err(StepFailure::InvalidInput(why)) => why,
        other => panic!("{attack}: {other:?}"),
    }
}

#[test]
fn time() {
    let begin = processor_time();
    for attack in ["spin", "flood-builtins"] {
        let step = load(attack, Limits { calls: usize::MAX, ..hurried() }).unwrap();
        let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!("{attack}") };
        assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("time", "200ms"), "{attack}");
    }
    let taken = processor_time().saturating_sub(begin);
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    assert_eq!(run(&load("", small()).unwrap(), "x"), Ok("visit 1".into()));
}

#[test]
fn a_deadline_after_a_long_rest() {
    let sandbox = Sandbox::new(SandboxOptions { slots: 2, ..SandboxOptions::default() }).unwrap();
    let config =
        ComponentConfig { options: json!({"attack": "spin"}), limits: hurried(), ..ComponentConfig::default() };
    let step = sandbox.load(&HOSTILE, config, &Arc::default()).unwrap();
    while !sandbox.engine().ticker.is_asleep() {
        std::thread::yield_now();
    }
    assert!(matches!(run(&step, "x"), Err(StepFailure::Limit(limit)) if limit.limit == "time"));
}

#[test]
fn the_requests_own_deadline() {
    let step = load("spin", Limits::default()).unwrap();
    let mut context = Context { deadline: Some(Instant::now() + Duration::from_millis(20)), ..Context::default() };
    assert_eq!(run_in(&step, "x", &mut context), Err(StepFailure::Timeout));
}

#[test]
fn memory() {
    for attack in ["allocate", "hoard-tensors", "big-tensor"] {
        let (outcome, context) = strike(attack);
        let Err(StepFailure::Limit(limit)) = outcome else { panic!("{attack}: {outcome:?}") };
        assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("memory", "8 MiB"), "{attack}");
        assert!(context.memory_peak.unwrap() <= 8 << 20, "{attack}");
    }
}

#[test]
fn handles() {
    assert_eq!(limit("flood-tensors"), ("handles".to_owned(), "1024 tensors".to_owned()));
}

#[test]
fn stack() {
    assert!(failed("recurse").starts_with("its stack overflowed"));
}

#[test]
fn panics_keep_the_log() {
    let (outcome, context) = strike("panic");
    let Err(StepFailure::Failed(why)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        why,
        "it gave up (it reached unreachable code: a panic or an abort); the last line it logged: error: panicked: this \
         guest means it"
    );
    assert_eq!(context.log, ["error: panicked: this guest means it"]);
}

#[test]
fn traps() {
    assert_eq!(failed("out-of-bounds"), "it accessed memory out of bounds");
}

#[test]
fn results() {
    assert_eq!(limit("huge-result"), ("result".to_owned(), "2 MiB".to_owned()));
    let json = |attack| failed(attack).split_once(": ").unwrap().1.to_owned();
    assert_eq!(json("deep-json"), "output `out` is JSON nested deeper than 64 levels (limit `json_depth`)");
    assert!(json("wide-json").contains("output `out` is JSON whose values take more memory"));
    assert!(json("bad-json").contains("output `out` is JSON that cannot be read"));
    let text = failed("bad-utf8");
    assert!(text.starts_with("it broke the contract with its host: invalid utf-8"), "{text}");
    let kind = failed("wrong-kind");
    assert_eq!(kind, "it broke its own signature: output `out` is to be JSON, but gets text");
}

#[test]
fn rejects_false_tensor_descriptions() {
    assert_eq!(refused("lying-length"), "a float32 tensor of shape [3, 4] takes 48 bytes, but 47 were given");
    assert!(refused("overflowing-shape").contains("does not fit in memory"));
    assert_eq!(refused("many-axes"), "a tensor of 1000 axes; at most 32 are allowed");
    assert_eq!(refused("bad-bool"), "byte 7 is not a bool: only 0 and 1 are");
    assert!(refused("read-outside").contains("lie outside a tensor of 4 bytes"));
}

#[test]
fn logs() {
    let (outcome, context) = strike("long-log");
    assert_eq!(outcome, Ok("visit 1".into()));
    assert!(context.log.iter().map(String::len).sum::<usize>() <= 3 << 10);
    // A flood is cut, not punished, unless it takes too long.
    let step = load("flood-log", small()).unwrap();
    let mut context = Context::default();
    assert_eq!(run_in(&step, "x", &mut context), Ok("visit 1".into()));
    assert_eq!(context.log.last().unwrap(), "info: line 99999");
    assert!(context.log[0].contains("older lines dropped") && context.log.len() < 200, "{}", context.log.len());
}

#[test]
fn setup() {
    let within = |setup_time: Duration, attack: &str| {
        let limits = Limits { setup_time, ..small() };
        load(attack, limits).err().unwrap_or_else(|| panic!("{attack} was accepted")).to_string()
    };
    let endless = within(Duration::from_millis(50), "configure-spin");
    assert!(endless.contains("`configure` did not succeed: it reached its limit of 50ms (setup_time)"), "{endless}");
    let setup = |attack: &str| within(Limits::default().setup_time, attack);
    assert!(setup("configure-refuse").contains("I do not want to [2J"), "{}", setup("configure-refuse"));
    assert!(setup("configure-twins").contains("two outputs named `out`"));
    assert!(setup("configure-ports").contains("1001 outputs; 64 are allowed"));
    assert!(setup("configure-long-name").contains("longer than 128 bytes (limit `name_length`)"));
    assert!(setup("configure-optional").contains("only inputs may be optional"));
    assert!(setup("configure-axes").contains("1000 axes; at most 32"));
}

#[test]
fn limits_time_of_describe() {
    let limits = Limits { setup_time: Duration::from_millis(50), ..Limits::default() };
    let bytes = guest("hostile/spin-in-describe.wasm");
    let error = SANDBOX
        .load(&bytes, ComponentConfig { limits, ..ComponentConfig::default() }, &Arc::default())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("`describe` did not succeed: it reached its limit of 50ms (setup_time)"), "{error}");
}

#[test]
fn requests_do_not_share_state() {
    let step = load("", Limits::default()).unwrap();
    for _ in 0..100 {
        assert_eq!(run(&step, "x"), Ok("visit 1".into()));
    }
}

#[test]
fn values_round_trip() {
    let step = load("echo", Limits::default()).unwrap();
    let tensor = Tensor::new([2], vec!["a".to_owned(), "é".to_owned()]).unwrap();
    let values: [Value; 5] = [
        Tensor::new([2, 1], vec![1.5_f32, f32::INFINITY]).unwrap().into(),
        tensor.into(),
        "text".into(),
        vec![0_u8, 255].into(),
        json!({"a": [1, null]}).into(),
    ];
    for value in values {
        assert_eq!(run(&step, value.clone()), Ok(value));
    }
}

#[test]
fn writing_to_an_input_copies_it() {
    let step = load("write-input", Limits::default()).unwrap();
    let given = Tensor::new([2], vec![1_u8, 2]).unwrap();
    let output = run(&step, given.clone()).unwrap();
    assert_eq!(output.as_tensor().unwrap().as_slice::<u8>().unwrap(), [9, 2]);
    assert_eq!(given.as_slice::<u8>().unwrap(), [1, 2]);
}

#[test]
fn enforces_limits_under_concurrent_load() {
    let spinning = load("spin", small()).unwrap();
    let peaceful = load("", Limits::default()).unwrap();
    std::thread::scope(|scope| {
        let attacker = scope.spawn(|| run(&spinning, "x"));
        for _ in 0..50 {
            assert_eq!(run(&peaceful, "x"), Ok("visit 1".into()));
        }
        assert!(matches!(attacker.join().unwrap(), Err(StepFailure::Limit(limit)) if limit.limit == "time"));
    });
}
