//! Both engines on the same models.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::BatchOptions;
use super::testing::{embedded, engines, model, onnxruntime, step, tensor};
use super::validation::{ValidationRequest, validate};
use super::*;
use gpux_core::{Context, ElementType, Precision, Step as _, StepFailure, Tensor, Value};

fn run(step: &ModelStep, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, StepFailure> {
    let inputs = inputs.into_iter().map(|tensor| Some(Value::Tensor(tensor))).collect();
    let outputs = step.run(inputs, &mut Context::default())?;
    Ok(outputs.into_iter().map(|value| value.as_tensor().unwrap().clone()).collect())
}

#[test]
fn passes_every_element_type_unchanged() {
    for engine in engines() {
        for element in ElementType::ALL {
            let name = format!("flip-{element}");
            let lacks = matches!(element, ElementType::String | ElementType::Bfloat16);
            if lacks && engine.name() == Embedded::NAME {
                let error = step(engine.clone(), &name).err().unwrap();
                assert!(matches!(error, ModelLoadError::NeedsOnnxRuntime { .. }), "{error}");
                assert!(error.to_string().contains("gpux engine install"), "{error}");
                continue;
            }
            let input = if element == ElementType::String {
                tensor(&[2, 3], ["a", "", "ü", "d", "long enough to be on the heap", "f"].map(str::to_owned).to_vec())
            } else {
                tensor(&[2, 3], vec![0_u8, 1, 2, 100, 1, 0]).cast(element).unwrap()
            };
            let flipped = run(&step(engine.clone(), &name).unwrap(), vec![input.clone()]).unwrap();
            assert_eq!(flipped[0], input.permute(&[1, 0]).unwrap(), "{} {element}", engine.name());
        }
    }
}

#[test]
fn runs_empty_tensors_and_any_number_of_rows() {
    for engine in engines() {
        let flip = step(engine.clone(), "flip-float32").unwrap();
        for rows in [1, 5, 2, 64] {
            let input = tensor(&[rows, 3], (0..rows * 3).map(|index| index as f32).collect::<Vec<_>>());
            assert_eq!(run(&flip, vec![input.clone()]).unwrap()[0], input.permute(&[1, 0]).unwrap());
        }
        let mean = step(engine.clone(), "mean").unwrap();
        for (batch, words) in [(1, 1), (3, 7), (2, 4)] {
            let output = run(&mean, vec![tensor(&[batch, words, 4], vec![1.5_f32; batch * words * 4])]).unwrap();
            assert_eq!(output[0].shape(), [batch, 4], "{}", engine.name());
            // One engine multiplies by 1/words, so the last bit may differ.
            assert!(output[0].as_slice::<f32>().unwrap().iter().all(|mean| (mean - 1.5).abs() < 1e-6), "{output:?}");
        }
    }
    let Some(engine) = onnxruntime() else { return };
    let flip = step(engine, "flip-float32").unwrap();
    assert_eq!(run(&flip, vec![tensor(&[0, 3], Vec::<f32>::new())]).unwrap()[0].shape(), [3, 0]);
}

#[test]
fn axes_with_placeholder_names_are_independent() {
    let info = model("placeholders").info().clone();
    let shapes = info.inputs.iter().map(|input| &input.shape).chain(info.outputs.iter().map(|output| &output.shape));
    assert!(shapes.flatten().flatten().all(|dim| *dim == gpux_core::Dim::Dynamic));
    for engine in engines() {
        let step = step(engine, "placeholders").unwrap();
        for count in [1, 2] {
            let inputs: Vec<_> = (0..info.inputs.len())
                .map(|index| tensor(&[count, index + 2], vec![index as f32; count * (index + 2)]))
                .collect();
            let expected: Vec<_> = inputs.iter().map(|input| input.permute(&[1, 0]).unwrap()).collect();
            assert_eq!(run(&step, inputs).unwrap(), expected, "{}", step.engine().name());
        }
    }
}

#[test]
fn runs_several_inputs_and_outputs() {
    for engine in engines() {
        let two = step(engine, "two").unwrap();
        let a = tensor(&[2, 4], vec![1_f32, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
        let b = tensor(&[2, 4], vec![9_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0]);
        let outputs = run(&two, vec![a, b]).unwrap();
        assert_eq!(outputs[0].as_slice::<f32>().unwrap()[..4], [10.0, 2.0, 3.0, 4.0]);
        assert_eq!(outputs[1], tensor(&[2], vec![0_i64, 2]));
    }
}

#[test]
fn accepts_missing_inputs_with_defaults() {
    for engine in engines() {
        let name = engine.name().to_owned();
        let default = step(engine, "default").unwrap();
        let x = || Some(Value::Tensor(tensor(&[1, 2], vec![3_f32, 4.0])));
        let output = default.run(vec![x(), None], &mut Context::default()).unwrap();
        assert_eq!(output[0], Value::Tensor(tensor(&[1, 2], vec![6_f32, 8.0])));
        let scale = Some(Value::Tensor(tensor(&[1], vec![10_f32])));
        let output = default.run(vec![x(), scale], &mut Context::default());
        if name == Embedded::NAME {
            let error = output.unwrap_err().to_string();
            assert!(error.contains("default of input `scale`") && error.contains("gpux engine install"), "{error}");
        } else {
            assert_eq!(output.unwrap()[0], Value::Tensor(tensor(&[1, 2], vec![30_f32, 40.0])));
        }
    }
}

#[test]
fn engines_agree_on_a_network() {
    let image: Vec<f32> = (0..64_u8).map(|index| f32::from(index % 7) / 7.0).collect();
    let outputs: Vec<_> = engines()
        .into_iter()
        .map(|engine| run(&step(engine, "conv").unwrap(), vec![tensor(&[1, 1, 8, 8], image.clone())]).unwrap())
        .collect();
    for other in &outputs[1..] {
        let pairs = outputs[0][0].as_slice::<f32>().unwrap().iter().zip(other[0].as_slice::<f32>().unwrap());
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5), "{outputs:?}");
    }
}

#[test]
fn failed_runs_keep_the_model_usable() {
    for engine in engines() {
        let gather = step(engine, "gather").unwrap();
        assert_eq!(run(&gather, vec![tensor(&[2], vec![2_i64, 0])]).unwrap()[0], tensor(&[2], vec![30_f32, 10.0]));
        let error = run(&gather, vec![tensor(&[1], vec![7_i64])]).unwrap_err();
        assert!(matches!(error, StepFailure::Failed(_)), "{error}");
        assert_eq!(run(&gather, vec![tensor(&[1], vec![1_i64])]).unwrap()[0], tensor(&[1], vec![20_f32]));
    }
}

#[test]
fn stops_runs_at_the_deadline() {
    let Some(engine) = onnxruntime() else { return };
    let step = step(engine, "loop").unwrap();
    let turn = |turns: i64, limit| {
        let inputs = [tensor(&[], vec![turns]), tensor(&[1], vec![0.5_f32])].map(|input| Some(Value::Tensor(input)));
        let mut context = Context { deadline: Some(Instant::now() + limit), ..Context::default() };
        step.run(inputs.to_vec(), &mut context)
    };
    let long = Duration::from_mins(5);
    // The second time the watching thread is known to be there already.
    for _ in 0..2 {
        // Hours of work.
        assert_eq!(turn(100_000_000_000, Duration::from_millis(100)), Err(StepFailure::Timeout));
        // The one session serves the next request.
        assert_eq!(turn(3, long), Ok(vec![Value::Tensor(tensor(&[1], vec![3.5_f32]))]));
    }
}

#[test]
fn names_operators_missing_in_the_embedded_engine() {
    let error = step(embedded(), "det").err().unwrap();
    assert!(error.to_string().contains("no operator `Det`; run `gpux engine install`"), "{error}");
    assert!(error.is_environment());
    let error = step(embedded(), "fill").err().unwrap();
    let reason = "no operator `ConstantOfShape` with input 0 (`shape`) that is not constant (node `filled`); run `gpux engine install`";
    assert!(error.to_string().ends_with(reason), "{error}");
    assert!(error.is_environment());
    // The model's own fault is not the machine's.
    assert!(!step(embedded(), "dangling").err().unwrap().is_environment());
    let error = step(embedded(), "sequence").err().unwrap();
    assert!(error.to_string().contains("no operator `SequenceConstruct`; run `gpux engine install`"), "{error}");
    assert!(error.is_environment());
    for engine in engines() {
        let error = step(engine, "complex").err().unwrap().to_string();
        assert!(error.contains("input `x` is complex64, which gpux does not carry"), "{error}");
    }
}

#[test]
fn loads_external_weights() {
    for engine in engines() {
        let output = run(&step(engine, "external").unwrap(), vec![tensor(&[4], vec![0.5_f32; 4])]).unwrap();
        assert_eq!(output[0], tensor(&[4], vec![1.5_f32, 2.5, 3.5, 4.5]));
    }
}

/// Where a downloaded snapshot is links to blobs, and a model that someone linked into a folder.
#[cfg(unix)]
#[test]
fn follows_links_to_weights() {
    use super::testing::path;
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (blobs, snapshot) = (folder.path().join("blobs"), folder.path().join("snapshots/abc"));
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    for (name, blob) in [("external.onnx", "1"), ("weights.bin", "2")] {
        std::fs::copy(path(name), blobs.join(blob)).unwrap();
        symlink(format!("../../blobs/{blob}"), snapshot.join(name)).unwrap();
    }
    let linked = folder.path().join("linked");
    std::fs::create_dir(&linked).unwrap();
    std::fs::copy(path("external.onnx"), linked.join("external.onnx")).unwrap();
    symlink(path("weights.bin"), linked.join("weights.bin")).unwrap();
    for engine in engines() {
        for folder in [&snapshot, &linked] {
            let file = Arc::new(ModelFile::open(folder.join("external.onnx")).unwrap());
            let step = ModelStep::load(engine.clone(), file, &ModelOptions::default()).unwrap();
            let output = run(&step, vec![tensor(&[4], vec![0.5_f32; 4])]).unwrap();
            assert_eq!(output[0], tensor(&[4], vec![1.5_f32, 2.5, 3.5, 4.5]), "{}", engine.name());
        }
    }
}

/// As a pipeline's folder in the store has them.
#[test]
fn loads_external_weights_with_several_names() {
    use super::testing::path;
    let folder = tempfile::tempdir().unwrap();
    for name in ["external.onnx", "external-branch.onnx", "weights.bin"] {
        std::fs::copy(path(name), folder.path().join(name)).unwrap();
        std::fs::hard_link(folder.path().join(name), folder.path().join(format!("{name}-too"))).unwrap();
    }
    for engine in engines() {
        for name in ["external.onnx", "external-branch.onnx"] {
            let file = Arc::new(ModelFile::open(folder.path().join(name)).unwrap());
            let step = ModelStep::load(engine.clone(), file, &ModelOptions::default()).unwrap();
            let output = run(&step, vec![tensor(&[4], vec![0.5_f32; 4])]).unwrap();
            assert_eq!(output[0], tensor(&[4], vec![1.5_f32, 2.5, 3.5, 4.5]), "{name} {}", engine.name());
        }
    }
}

#[test]
fn rejects_inputs_smaller_than_a_window() {
    for engine in engines() {
        let is_embedded = engine.name() == Embedded::NAME;
        let image = |height: usize, width: usize| vec![tensor(&[1, 1, height, width], vec![1_f32; height * width])];
        for (name, whole) in [("unpadded", 9.0_f32), ("pool", 1.0)] {
            let step = step(engine.clone(), name).unwrap();
            // Often enough that the embedded engine makes a plan for the shape.
            for _ in 0..40 {
                assert_eq!(run(&step, image(3, 3)).unwrap()[0], tensor(&[1, 1, 1, 1], vec![whole]));
                for (height, width) in [(1, 1), (2, 2), (1, 9), (0, 8)] {
                    match run(&step, image(height, width)) {
                        Err(StepFailure::Unsupported(why)) if is_embedded && name == "pool" => {
                            assert!(why.contains("`MaxPool` of node") && why.contains("gpux engine install"), "{why}");
                        }
                        Err(StepFailure::Failed(why)) if is_embedded && name == "unpadded" => {
                            let sizes = format!("an input of {height} × {width}, where its window needs 3 × 3");
                            assert!(why.contains("`Conv` of node") && why.contains(&sizes), "{why}");
                        }
                        Err(StepFailure::Failed(_)) if !is_embedded => {}
                        // As many windows as fit: none.
                        Ok(outputs) if !is_embedded && name == "pool" => assert_eq!(outputs[0].shape(), [1, 1, 0, 0]),
                        other => panic!("{name} {height} × {width}: {other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn runs_models_that_state_shapes_of_inner_values() {
    for engine in engines() {
        let step = step(engine, "inner-shapes").unwrap();
        for size in [4, 6] {
            // Often enough that the embedded engine makes a plan for the shape.
            for _ in 0..40 {
                let output = run(&step, vec![tensor(&[2, 1, size, size], vec![1_f32; 2 * size * size])]).unwrap();
                assert_eq!(output[0].shape(), [2, 1, size / 2, size / 2]);
                assert_eq!(output[0].as_slice::<f32>().unwrap()[..2], [4.0, 6.0]);
            }
        }
    }
}

#[test]
fn gives_inputs_and_weights_as_outputs() {
    for engine in engines() {
        let numbers = |numbers: &[f32]| tensor(&[numbers.len()], numbers.to_vec());
        let step_of = |name| step(engine.clone(), name).unwrap();
        for count in [2, 3] {
            let x = numbers(&[1.0, 2.0, 3.0][..count]);
            let outputs = run(&step_of("passthrough"), vec![x.clone()]).unwrap();
            assert_eq!(outputs, [numbers(&[2.0, 4.0, 6.0][..count]), x.clone(), numbers(&[2.0])], "{}", engine.name());
            assert_eq!(run(&step_of("nodeless"), vec![x.clone()]).unwrap(), [x]);
        }
    }
}

#[test]
fn weights_of_old_formats_are_no_inputs() {
    for engine in engines() {
        let step = step(engine, "listed").unwrap();
        assert_eq!(step.signature().inputs.len(), 1);
        let output = run(&step, vec![tensor(&[1, 2], vec![3_f32, 4.0])]).unwrap();
        assert_eq!(output[0], tensor(&[1, 2], vec![6_f32, 8.0]));
    }
}

#[test]
fn missing_providers_fall_back_or_fail() {
    let load = |strict| {
        let providers = "cuda".parse().unwrap();
        ModelStep::load(embedded(), model("conv"), &ModelOptions { providers, strict, ..ModelOptions::default() })
    };
    let step = load(false).unwrap();
    assert_eq!(step.provider(), ExecutionProvider::Cpu);
    assert_eq!(step.fallbacks()[0].provider, ExecutionProvider::Cuda);
    assert!(matches!(load(true).err().unwrap(), ModelLoadError::Provider(_)));
}

#[test]
fn rejects_mutated_models() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutated.onnx");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut loaded = 0;
    for name in ["conv", "two", "mean", "gather"] {
        let original = std::fs::read(testing::path(&format!("{name}.onnx"))).unwrap();
        for _ in 0..100 {
            let mut bytes = original.clone();
            for _ in 0..=next(3) {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }
            if next(4) == 0 {
                bytes.truncate(next(bytes.len()));
            }
            std::fs::write(&path, &bytes).unwrap();
            let Ok(file) = ModelFile::open(&path) else { continue };
            // Sizes that a child's bounds would meet are left out here.
            let absurd = |dims: &Vec<gpux_core::Dim>| {
                dims.iter().any(|dim| matches!(dim, gpux_core::Dim::Fixed(size) if *size > 1000))
            };
            if file.info().inputs.iter().any(|input| input.shape.as_ref().is_some_and(absurd)) {
                continue;
            }
            let request = ValidationRequest {
                plugins: Vec::new(),
                precision: Precision::Exact,
                model: path.clone(),
                library: None,
                providers: ProviderChoice::Auto,
                options: ProviderOptions::default(),
                memory: None,
                measure: false,
                shapes: Vec::new(),
                batch: BatchOptions::default(),
                instances: None,
                threads: None,
                timeout: Duration::from_mins(2),
            };
            loaded += usize::from(validate(&request).is_ok());
        }
    }
    assert!(loaded > 20, "only {loaded} of 400 loaded: nothing was tested");
}

#[test]
fn rejects_a_second_library() {
    let Some(_engine) = onnxruntime() else { return };
    let found = LibrarySearch::from_environment(None).choose().unwrap().found.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(found.path.file_name().unwrap());
    std::fs::copy(&found.path, &copy).unwrap();
    let error = OnnxRuntime::load(&LibraryFile::at(&copy, LibraryOrigin::Option)).unwrap_err();
    assert!(matches!(error, LibraryError::Another { .. }), "{error}");
    let report = probe(&found.path, &[]).unwrap();
    assert!(report.providers.contains(&ExecutionProvider::Cpu) && report.version.starts_with("1."), "{report:?}");
}

#[test]
fn serves_many_threads() {
    for engine in engines() {
        let options = ModelOptions { instances: Some(2), ..ModelOptions::default() };
        let step = Arc::new(ModelStep::load(engine, model("gather"), &options).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..6_usize {
                let step = step.clone();
                scope.spawn(move || {
                    for turn in 0..50 {
                        let index = (thread + turn) % 3;
                        let output = run(&step, vec![tensor(&[1], vec![index as i64])]).unwrap();
                        assert_eq!(output[0], tensor(&[1], vec![10.0 * (index + 1) as f32]));
                    }
                });
            }
        });
    }
}

/// Threads of this process that go by the calling thread's name: those it has made, and itself.
#[cfg(target_os = "linux")]
fn threads_of_this_name() -> usize {
    let name = std::thread::current().name().unwrap().to_owned();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn shares_threads_by_default() {
    let Some(engine) = onnxruntime() else { return };
    assert!(engine.threads(None) > 0 && engine.threads(None) <= std::thread::available_parallelism().unwrap().get());
    let load = move || {
        let load = |threads| engine.load(&model("conv"), &SessionOptions { threads, ..SessionOptions::cpu() }).unwrap();
        let _shared = [load(None), load(None), load(Some(1))];
        assert_eq!(threads_of_this_name(), 1);
        // The thread that runs a session is one of its threads.
        let _own = load(Some(3));
        assert_eq!(threads_of_this_name(), 3);
    };
    std::thread::Builder::new().name("loads-sessions".to_owned()).spawn(load).unwrap().join().unwrap();
}

#[test]
fn single_threaded_runs_give_equal_results() {
    let Some(engine) = onnxruntime() else { return };
    let step = step(engine, "conv").unwrap();
    let image = |seed: usize| tensor(&[1, 1, 8, 8], (0..64).map(|at| (at * seed % 13) as f32).collect::<Vec<_>>());
    let first = run(&step, vec![image(5)]).unwrap();
    // Far more runs than it takes to decide.
    for seed in 0..200 {
        run(&step, vec![image(seed)]).unwrap();
    }
    assert_eq!(run(&step, vec![image(5)]).unwrap(), first);
}

#[test]
fn smoke_test_rejects_models_that_never_run() {
    let error = step(embedded(), "ranks").and_then(|step| step.smoke_test()).unwrap_err();
    let ModelLoadError::BeyondEmbedded { reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("operator `If` of node `choice`"), "{reason}");
    assert!(error.to_string().contains("gpux engine install"), "{error}");
    for name in ["conv", "two", "mean", "embedding", "gather", "unpadded", "channels"] {
        step(embedded(), name).unwrap().smoke_test().unwrap();
    }
    if let Some(engine) = onnxruntime() {
        step(engine, "ranks").unwrap().smoke_test().unwrap();
    }
}
