//! Steps that `configure` prepares, and models that it requires.

use super::super::prepared::{PreparedCall, PreparedSteps};
use super::*;

fn doubled(step: &ComponentStep) {
    let output = run(step, "x").unwrap();
    assert_eq!(output.as_tensor().unwrap().as_slice::<u8>().unwrap(), [1, 2, 3, 1, 2, 3]);
}

#[test]
fn prepared_steps_run_from_the_snapshot() {
    // The second time, what was prepared comes from the cache.
    for _ in 0..2 {
        let step = load("prepared", Limits::default()).unwrap();
        assert_eq!(step.details()["start"], json!("snapshot"));
        let mut context = Context::default();
        run_in(&step, "x", &mut context).unwrap();
        let calls: Vec<_> = context.calls.iter().map(|calls| (calls.name.as_str(), calls.count)).collect();
        assert_eq!(calls, [("copy", 1)]);
        doubled(&step);
    }
}

#[test]
fn prepared_steps_run_in_reused_instances() {
    let options = json!({"attack": "prepared"});
    let config = ComponentConfig { options, reuse: true, ..ComponentConfig::default() };
    let step = SANDBOX.load(&HOSTILE, config, &Arc::new(Registry::new([COPY]))).unwrap();
    doubled(&step);
    // It takes its attack only once; a further instance has it again.
    assert_eq!(run(&step, "x"), Ok("visit 2".into()));
}

/// Without a snapshot, each instance prepares again.
#[test]
fn prepared_steps_run_without_a_snapshot() {
    let step = load("prepared-with-handle", Limits::default()).unwrap();
    assert!(step.details()["start"]["configure"].is_object(), "{}", step.details());
    for _ in 0..2 {
        doubled(&step);
    }
}

#[test]
fn prepared_steps_run_in_configure() {
    let step = load("run-prepared-in-configure", Limits::default()).unwrap();
    // A tensor that it dropped is no reason against a snapshot.
    assert_eq!(step.details()["start"], json!("snapshot"));
}

fn refusal(attack: &str) -> String {
    load(attack, Limits::default()).err().unwrap().to_string()
}

#[test]
fn rejects_wrong_options_when_the_component_is_loaded() {
    let error = refusal("prepare-wrong-options");
    assert!(error.contains("the options of `copy` do not fit"), "{error}");
}

#[test]
fn bounds_what_is_prepared() {
    let error = refusal("prepare-many");
    assert!(error.contains("at most 64 steps"), "{error}");
    let error = refusal("prepare-much");
    assert!(error.contains("at most 4 MiB are allowed"), "{error}");
}

#[test]
fn rejects_preparing_outside_of_configure() {
    let step = load("prepare-in-process", Limits::default()).unwrap();
    assert_eq!(run(&step, "x"), Err(StepFailure::Failed("steps can be prepared in `configure` only".to_owned())));
}

#[test]
fn rejects_unknown_numbers() {
    let step = load("unknown-prepared", Limits::default()).unwrap();
    let Err(StepFailure::InvalidInput(why)) = run(&step, "x") else { panic!() };
    assert_eq!(why, "there is no prepared step 4294967295; `configure` prepared 2, numbered from 0");
}

/// What another process says that it prepared is checked as if a component asked for it here.
#[test]
fn checks_prepared_steps_of_another_process() {
    let rebuild = |calls: Vec<(&str, String)>| {
        let calls = calls.into_iter().map(|(name, options)| PreparedCall { name: name.to_owned(), options });
        let capabilities = Capabilities::new(&ComponentConfig::default(), Arc::new(Registry::new([COPY]))).unwrap();
        PreparedSteps::rebuild(calls.collect(), |call| capabilities.prepared(call))
    };
    let times = |times: i32| json!({ "times": times }).to_string();
    assert_eq!(rebuild(vec![("copy", times(1)), ("copy", times(2))]).unwrap().calls().len(), 2);
    let error = |calls| rebuild(calls).err().unwrap();
    assert!(error(vec![("copy", times(-1))]).contains("do not fit"));
    assert!(error(vec![("wasm", "{}".to_owned())]).contains("no built-in step `wasm`"));
    assert!(error(vec![("copy", times(1)); 65]).contains("at most 64"));
    assert!(error(vec![("copy", " ".repeat(5 << 20))]).contains("at most 4 MiB"));
}

/// A snapshot's list of prepared steps is sealed with it: a changed one counts as missing.
#[test]
fn ignores_a_snapshot_whose_list_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::at(folder.path().to_owned());
    let options = SandboxOptions { cache: Some(cache), ..SandboxOptions::default() };
    let load = || {
        let config = ComponentConfig { options: json!({"attack": "prepared"}), ..ComponentConfig::default() };
        let sandbox = Sandbox::new(options.clone()).unwrap();
        sandbox.load(&HOSTILE, config, &Arc::new(Registry::new([COPY]))).unwrap()
    };
    doubled(&load());
    let mut changed = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
        let Ok(files) = std::fs::read_dir(entry.path()) else { continue };
        for file in files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "json"))
        {
            let mut bytes = std::fs::read(&file).unwrap();
            let wanted = br#"{\"times\": 2}"#;
            if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
                bytes[at + wanted.len() - 2] = b'9';
                std::fs::write(&file, bytes).unwrap();
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 1);
    doubled(&load());
}

#[test]
fn required_models_need_a_grant() {
    let load = |attack: &str| {
        let mut registry = Registry::new([COPY]);
        let texts = Signature::unary(Port::new("text", Kind::Text), Port::new("text", Kind::Text));
        registry.add_model("rec", Arc::new(Echo(texts)));
        let config = ComponentConfig {
            options: json!({"attack": attack}),
            grants: granted(&["rec"]),
            ..ComponentConfig::default()
        };
        SANDBOX.load(&guest("hostile/drive-model.wasm"), config, &Arc::new(registry))
    };
    assert_eq!(run(&load("require").unwrap(), "x"), Ok("seen".into()));
    let error = load("require-not-granted").err().unwrap().to_string();
    assert!(error.contains("the model `other` is not granted; granted are: rec"), "{error}");
    // Described without a pipeline, it may require any.
    let options = json!({"attack": "require-not-granted"});
    let info = SANDBOX.inspect(&guest("hostile/drive-model.wasm"), Some(&options)).unwrap();
    assert_eq!(info.problem, None);
}

struct Echo(Signature);

impl Step for Echo {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&self, mut inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        Ok(inputs.pop().flatten().into_iter().collect())
    }
}

#[test]
fn components_read_and_set_transforms() {
    let step = load("transform", Limits::default()).unwrap();
    let metadata = gpux_core::Metadata {
        transform: Some([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
        ..gpux_core::Metadata::default()
    };
    let given = Tensor::new([1], vec![0_u8]).unwrap();
    let transform = |tensor: Tensor| {
        let output = run(&step, Value::from(tensor)).unwrap();
        output.as_tensor().unwrap().metadata.transform
    };
    let expected = [1.0, 2.0, 4.0, 4.0, 5.0, 12.0, 7.0, 8.0, 9.0];
    assert_eq!(transform(given.clone().with_metadata(metadata)), Some(expected));
    assert_eq!(transform(given), Some([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]));
}
