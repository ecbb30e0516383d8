//! Native steps, called from inside.

use super::*;

#[test]
fn a_builtin_runs_on_lent_tensors() {
    let step = load("builtin", Limits::default()).unwrap();
    for _ in 0..2 {
        let output = run(&step, "x").unwrap();
        assert_eq!(output.as_tensor().unwrap().as_slice::<u8>().unwrap(), [1, 2, 3, 1, 2, 3]);
    }
}

#[test]
fn a_builtins_options_are_checked() {
    let step = load("builtin-wrong-options", Limits::default()).unwrap();
    let Err(StepFailure::InvalidInput(why)) = run(&step, "x") else { panic!() };
    assert!(why.starts_with("the options of `copy` do not fit"), "{why}");
}

#[test]
fn a_builtin_whose_result_cannot_fit_is_not_run() {
    let step = load("builtin-too-large", Limits::default()).unwrap();
    let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!() };
    assert_eq!((limit.limit, limit.value.as_str()), ("memory", "64 MiB"));
}

#[test]
fn native_calls_count_against_the_deadline() {
    let limits = Limits { time: std::time::Duration::from_millis(30), ..Limits::default() };
    let step = load("slow-builtin", limits).unwrap();
    let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!() };
    assert_eq!((limit.limit, limit.value.as_str()), ("time", "30ms"));
}
