//! How requests get their instances: from a snapshot, configured again, or reused.

use super::super::Start;
use super::*;

#[test]
fn requests_start_from_a_snapshot() {
    let step = load("", Limits::default()).unwrap();
    assert_eq!(step.start, Start::Snapshot);
    assert!(step.guest.options.is_none());
}

#[test]
fn results_are_the_same_without_a_snapshot() {
    let step = load("echo", Limits::default()).unwrap();
    let again = {
        let mut step = load("echo", Limits::default()).unwrap();
        let bytes = componentize(&HOSTILE).unwrap();
        let compiled = Arc::new(CompiledComponent::new(&SANDBOX.engine().wasmtime, &bytes).unwrap());
        let capabilities = Capabilities::new(&ComponentConfig::default(), Arc::default()).unwrap();
        step.guest.linked = LinkedComponent::new(SANDBOX.engine().clone(), compiled, capabilities).unwrap();
        step.guest.options = Some(json!({"attack": "echo"}).to_string());
        step
    };
    let value = Value::from(Tensor::new([3], vec![1.5_f32, -0.0, f32::MAX]).unwrap());
    assert_eq!(run(&step, value.clone()), run(&again, value));
}

#[test]
fn reused_instances_keep_state_until_an_error() {
    let limits = Limits { input: 10, ..Limits::default() };
    let options = json!({"attack": ""});
    let config = ComponentConfig { options, limits, reuse: true, ..ComponentConfig::default() };
    let step = SANDBOX.load(&HOSTILE, config, &Arc::default()).unwrap();
    assert_eq!(run(&step, "x"), Ok("visit 1".into()));
    assert_eq!(run(&step, "x"), Ok("visit 2".into()));
    // A request that is refused before the guest saw it ends the instance as well.
    assert!(matches!(run(&step, "eleven byte"), Err(StepFailure::Limit(_))));
    assert_eq!(run(&step, "x"), Ok("visit 1".into()));
}

#[test]
fn reused_instances_start_with_an_empty_log() {
    let limits = Limits { time: std::time::Duration::from_mins(1), ..Limits::default() };
    let options = json!({"attack": "flood-log"});
    let config = ComponentConfig { options, limits, reuse: true, ..ComponentConfig::default() };
    let step = SANDBOX.load(&HOSTILE, config, &Arc::default()).unwrap();
    // It attacks on its first visit only.
    for (visit, last) in [(1, Some("info: line 99999")), (2, None)] {
        let mut context = Context::default();
        assert_eq!(run_in(&step, "x", &mut context), Ok(format!("visit {visit}").into()));
        assert_eq!(context.log.last().map(String::as_str), last);
    }
}

#[test]
fn limits_input_size() {
    let step = load("echo", Limits { input: 10, ..Limits::default() }).unwrap();
    assert_eq!(run(&step, "ten bytes!"), Ok("ten bytes!".into()));
    let Err(StepFailure::Limit(limit)) = run(&step, "eleven byte") else { panic!("it took eleven") };
    assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("input", "10 bytes"));
}

#[test]
fn nested_calls_are_bounded() {
    let step = load("flood-builtins", Limits { calls: 20, ..Limits::default() }).unwrap();
    let Err(StepFailure::Limit(limit)) = run(&step, "x") else { panic!("it went on") };
    assert_eq!((limit.limit.as_ref(), limit.value.as_str()), ("calls", "20 calls"));
}

#[test]
fn caches_prepared_components() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = || {
        let cache = Some(CacheDir::at(folder.path().join("cache")));
        Sandbox::new(SandboxOptions { cache, slots: 2, ..SandboxOptions::default() }).unwrap()
    };
    let load = |options| {
        let config = ComponentConfig { options, ..ComponentConfig::default() };
        sandbox().load(&HOSTILE, config, &Arc::default()).unwrap()
    };
    let kept = || std::fs::read_dir(folder.path().join("cache/steps")).unwrap().count();
    let first = load(json!({"attack": "echo"}));
    assert_eq!(kept(), 2, "the answer and its code");
    // A file that is gone, cut off or changed is made again.
    for entry in std::fs::read_dir(folder.path().join("cache/steps")).unwrap() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 0x10;
        for spoilt in [b"".as_slice(), b"{", &whole[..whole.len() / 2], &whole[..whole.len() - 1], &changed] {
            std::fs::write(&path, spoilt).unwrap();
            let second = load(json!({"attack": "echo"}));
            assert_eq!(first.details(), second.details());
            assert_eq!(run(&second, "x"), Ok("x".into()));
            assert_eq!(std::fs::read(&path).unwrap().len(), whole.len(), "{}", path.display());
        }
        std::fs::remove_file(&path).unwrap();
        load(json!({"attack": "echo"}));
        assert!(path.exists());
    }
    load(json!({"attack": ""}));
    assert_eq!(kept(), 4);
    // To be described, it is not compiled for requests.
    sandbox().inspect(&HOSTILE, None).unwrap();
    assert_eq!(kept(), 5);
}

#[test]
fn shares_one_sandbox_per_process() {
    let options = || SandboxOptions { slots: 3, ..SandboxOptions::default() };
    let first = Sandbox::shared(options()).unwrap();
    let step = first.load(
        &HOSTILE,
        ComponentConfig { options: json!({"attack": "echo"}), ..ComponentConfig::default() },
        &Arc::default(),
    );
    let engine = Arc::downgrade(first.engine());
    drop(first);
    let second = Sandbox::shared(options()).unwrap();
    assert!(std::ptr::eq(engine.as_ptr(), &raw const **second.engine()), "the step keeps it");
    let other = Sandbox::shared(SandboxOptions { slots: 4, ..options() }).unwrap();
    assert!(!std::ptr::eq(engine.as_ptr(), &raw const **other.engine()), "the operator said something else");
    drop((step, second));
    assert!(engine.upgrade().is_none(), "nobody uses it any more");
}

#[test]
fn warns_without_address_space_for_a_pool() {
    let options = |slots| SandboxOptions { slots, ..SandboxOptions::default() };
    assert_eq!(Sandbox::new(options(2)).unwrap().warning(), None);
    assert!(Sandbox::new(options(1 << 20)).unwrap().warning().unwrap().contains("address space"));
}
