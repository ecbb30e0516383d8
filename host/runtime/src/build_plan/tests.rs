use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::internal::Definition;
use crate::{GpuxError, LoadOptions, Pipeline};
use gpux_config::Variables;
use gpux_core::{CancelFlag, Context, Observer, PlannedStep, RunOptions, Value, to_json};

/// A pipeline of these inputs and steps.
fn open(inputs: &str, steps: &str) -> Result<Pipeline, GpuxError> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/gpux.yml"));
    let text = format!("name: t\nversion: 1.0.0\ninputs: {inputs}\npipeline:\n{steps}");
    let (document, spec) = gpux_config::parse("gpux.yml", text, &Variables::empty(), &crate::source::check_step)
        .map_err(|error| GpuxError::Configuration(gpux_config::LoadError::Invalid(error)))?;
    Pipeline::load(Definition::new(path, document, spec), &LoadOptions::default())
}

fn mistakes(inputs: &str, steps: &str) -> String {
    open(inputs, steps).err().unwrap().to_string()
}

fn run_with(pipeline: &Pipeline, request: Json, options: RunOptions<'_>) -> Result<Json, GpuxError> {
    let values = pipeline.plan().signature().reader(&[]).json(request)?;
    let outputs = pipeline.plan().run(values, options)?;
    Ok(outputs.into_iter().map(|(name, value)| (name, to_json(&value))).collect())
}

fn run(pipeline: &Pipeline, request: Json) -> Json {
    run_with(pipeline, request, RunOptions::default()).unwrap()
}

fn failure(pipeline: &Pipeline, request: Json) -> GpuxError {
    run_with(pipeline, request, RunOptions::default()).unwrap_err()
}

/// Steps for each of `xs`, with these options.
fn each(options: &str, steps: &str) -> String {
    format!("  - for-each: {{ in: {{ x: xs }}, over: x, {options} steps: [{steps}] }}\n")
}

const LIST: &str = "{ xs: json }";
const ROWS: &str = "{ xs: { type: float32, shape: [N, 2] } }";

#[test]
fn items_are_elements_of_lists_and_indexes_of_axis_0() {
    let template = "{ json-template: { in: { x: x }, template: { was: \"{{x}}\" } } }";
    let list = open(LIST, &each("batch: 2,", template)).unwrap();
    let given = json!({ "xs": ["a", 1, null, { "b": [2] }, [3, 4]] });
    let expected = json!([{ "was": "a" }, { "was": 1 }, { "was": null }, { "was": { "b": [2] } }, { "was": [3, 4] }]);
    assert_eq!(run(&list, given)["json"], expected);
    assert_eq!(run(&list, json!({ "xs": [] }))["json"], json!([]));

    let rows = open(ROWS, &each("", "{ scale: { factor: 2 } }")).unwrap();
    assert_eq!(
        run(&rows, json!({ "xs": [[1, 2], [3, 4], [5, 6]] })),
        json!({ "tensor": [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0]] })
    );
    let empty = gpux_core::Tensor::zeros(gpux_core::ElementType::Float32, [0, 2]).unwrap();
    let outputs = rows.plan().run(vec![("xs".to_owned(), empty.into())], RunOptions::default()).unwrap();
    assert_eq!(outputs[0].1.as_tensor().unwrap().shape(), [0, 2]);

    // Texts become text, in a list and in a tensor.
    for inputs in [LIST, "{ xs: { type: string, shape: [N] } }"] {
        let texts = open(inputs, &each("", "{ normalize-text: { case: lower } }")).unwrap();
        assert_eq!(run(&texts, json!({ "xs": ["A", "É"] }))["text"], json!(["a", "é"]), "{inputs}");
    }
}

#[test]
fn several_lists_go_together_beside_values_for_all() {
    let steps = "  - for-each:
      in: { x: xs, y: ys, all: all }
      over: [x, y]
      batch: 3
      steps:
        - json-template: { in: { x: x, y: y, all: all }, template: [\"{{x}}\", \"{{y}}\", \"{{all}}\"] }
      out: triples\n";
    let pipeline = open("{ xs: json, ys: json, all: text }", steps).unwrap();
    let given = json!({ "xs": [1, 2], "ys": ["a", "b"], "all": "t" });
    assert_eq!(run(&pipeline, given), json!({ "triples": [[1, "a", "t"], [2, "b", "t"]] }));
    let error = failure(&pipeline, json!({ "xs": [1, 2], "ys": ["a"], "all": "t" }));
    assert_eq!(error.to_string(), "step 1 (for-each): `x` has 2 items, but `y` has 1");
    assert!(failure(&pipeline, json!({ "xs": {}, "ys": [], "all": "t" })).to_string().contains("other JSON"));
}

#[test]
fn rejects_more_items_than_allowed_or_leaves_them_out() {
    /// Counts what steps left out.
    struct Truncations(u32);
    impl Observer for Truncations {
        fn after(&mut self, _: &PlannedStep, _: Duration, _: &[Value], context: &Context) {
            self.0 += context.texts.truncated;
        }
    }
    let xs = json!({ "xs": [[1, 2], [3, 4], [5, 6]] });
    let strict = open(ROWS, &each("max_items: 2,", "softmax")).unwrap();
    let message = failure(&strict, xs.clone()).to_string();
    assert_eq!(message, "step 1 (for-each): `x` has 3 items; at most 2 are allowed (`max_items`)");
    let truncating = open(ROWS, &each("max_items: 2, overflow: truncate,", "{ scale: { factor: 1 } }")).unwrap();
    let mut truncations = Truncations(0);
    let options = RunOptions { observer: Some(&mut truncations), ..RunOptions::default() };
    assert_eq!(run_with(&truncating, xs, options).unwrap()["tensor"], json!([[1.0, 2.0], [3.0, 4.0]]));
    assert_eq!(truncations.0, 1);
}

#[test]
fn keeps_the_items_whose_conditions_hold() {
    let steps = "  - for-each:
      in: { x: xs, label: labels }
      over: [x, label]
      steps:
        - scale: { in: x, factor: 10, out: y }
      gives: [y, label]
      keep: [x >= 0.5, label]\n";
    let pipeline = open("{ xs: { type: float32, shape: [N, 1] }, labels: json }", steps).unwrap();
    let given = json!({ "xs": [[1], [0.25], [2], [3]], "labels": ["a", "b", "", "c"] });
    assert_eq!(run(&pipeline, given), json!({ "y": [[10.0], [30.0]], "label": ["a", "c"] }));
    let none = json!({ "xs": [[0.25]], "labels": ["b"] });
    assert_eq!(run(&pipeline, none), json!({ "y": [], "label": [] }));
}

#[test]
fn names_the_step_and_the_item_that_fail() {
    let inner = each("batch: 2,", "{ normalize-text: { case: lower } }, { json-template: { template: \"{{text}}\" } }");
    let pipeline = open(LIST, &inner).unwrap();
    let error = failure(&pipeline, json!({ "xs": ["a", "b", "c", { "d": 1 }] }));
    assert!(error.to_string().starts_with("step 1.1 (normalize-text), item 3: "), "{error}");
    let details = &error.to_json()["details"];
    assert_eq!((&details["step"], &details["inner_step"], &details["items"]), (&json!(1), &json!("1.1"), &json!([3])));

    let nested = "  - softmax: { in: n, out: n }
  - for-each:
      in: { row: xs }
      over: row
      steps:
        - for-each: { in: { x: row }, over: x, steps: [{ normalize-text: { case: lower } }] }
      out: all\n";
    let pipeline = open("{ xs: json, n: { type: float32, shape: [2] } }", nested).unwrap();
    let given = |xs: Json| json!({ "xs": xs, "n": [1, 2] });
    assert_eq!(run(&pipeline, given(json!([["A"], [], ["B", "C"]]))), json!({ "all": [["a"], [], ["b", "c"]] }));
    let error = failure(&pipeline, given(json!([["A"], ["B", 5]])));
    assert!(error.to_string().starts_with("step 2.1.1 (normalize-text), item 1, item 1: "), "{error}");
    let numbers: Vec<_> =
        pipeline.plan().all_steps().into_iter().map(|(number, step)| format!("{number} {}", step.name)).collect();
    assert_eq!(numbers, ["1 softmax", "2 for-each", "2.1 for-each", "2.1.1 normalize-text"]);
}

#[test]
fn rejects_plans_whose_items_do_not_fit() {
    let open_rows = "{ xs: { type: float32, shape: [N, M] } }";
    for (inputs, steps, expected) in [
        (open_rows, each("", "softmax"), "`scores` is float32[M], whose shape is open"),
        (ROWS, each("", "{ normalize-text: { case: lower } }"), "takes tensor string[?], but gets tensor float32[2]"),
        (ROWS, each("gives: nothing,", "softmax"), "no step gives `nothing`"),
        ("{ xs: text }", each("", "softmax"), "`over` names `x`, but its items are those of a JSON list"),
        ("{ ys: text }", each("", "softmax"), "nothing before this step gives `xs`"),
        ("{ xs: { type: float32, shape: [] } }", each("", "softmax"), "it has no axes"),
        (
            "{ xs: json, image: bytes }",
            "  - for-each: { in: { x: xs, image: image }, over: x, steps: [{ softmax: { in: x } }], gives: image }\n"
                .to_owned(),
            "`image` is bytes, which make no list",
        ),
        // Only the names of `in` are seen within.
        (
            "{ xs: json, other: text }",
            each("", "{ normalize-text: { in: other, case: lower } }"),
            "nothing before this step gives `other`",
        ),
    ] {
        let message = mistakes(inputs, &steps);
        assert!(message.contains(expected), "{steps}: {message}");
    }
    assert!(
        mistakes(ROWS, &each("keep: x,", "softmax"))
            .contains("a condition is about one value, but `x` is tensor float32[2]")
    );
    let many = each("", &vec!["softmax"; 255].join(", ")) + "  - softmax\n";
    assert!(mistakes(ROWS, &many).contains("more than 256 steps"));
}

#[test]
fn steps_run_only_when_their_condition_holds() {
    let steps = "  - scale: { in: x, factor: 2, when: is_small, out: y }
  - scale: { in: y, factor: 10, when: count > 0, out: z }\n";
    let inputs = "{ x: { type: float32, shape: [2] }, is_small: json, count: { type: int32, shape: [1] } }";
    let pipeline = open(inputs, steps).unwrap();
    let given = |small: Json, count: i32| json!({ "x": [1, 2], "is_small": small, "count": [count] });
    for (small, count, expected) in [
        (json!(true), 1, [20.0, 40.0]),
        (json!(false), 1, [10.0, 20.0]),
        (json!(1), 0, [2.0, 4.0]),
        (json!(0.0), 0, [1.0, 2.0]),
        (json!([]), 0, [1.0, 2.0]),
        (json!("yes"), 0, [2.0, 4.0]),
        (json!(null), 0, [1.0, 2.0]),
    ] {
        assert_eq!(run(&pipeline, given(small, count)), json!({ "z": expected }));
    }
    let pipeline = open("{ x: { type: float32, shape: [N] } }", "  - scale: { factor: 2, when: x }\n").unwrap();
    assert_eq!(run(&pipeline, json!({ "x": [3] })), json!({ "tensor": [6.0] }));
    assert_eq!(run(&pipeline, json!({ "x": [0] })), json!({ "tensor": [0.0] }));
    let error = failure(&pipeline, json!({ "x": [1, 2] })).to_string();
    assert_eq!(error, "step 1 (scale): the condition `x` is about one value, but gets float32[2]");

    // Each item decides for itself.
    let steps = "  - threshold: { in: xs, threshold: 3, out: kept }
  - for-each: { in: { x: xs, when: flags }, over: [x, when], batch: 4, steps: [{ scale: { in: x, factor: -1, when: when } }] }\n";
    let pipeline = open("{ xs: { type: float32, shape: [N, 1] }, flags: json }", steps).unwrap();
    let given = json!({ "xs": [[1], [2], [3]], "flags": [true, false, true] });
    assert_eq!(run(&pipeline, given), json!({ "tensor": [[-1.0], [2.0], [-3.0]] }));

    for (when, expected) in [
        ("two", "a condition is about one value, but `two` is tensor float32[2]"),
        ("nothing", "nothing before this step gives `nothing`"),
    ] {
        let inputs = "{ x: { type: float32, shape: [2] }, two: { type: float32, shape: [2] } }";
        let message = mistakes(inputs, &format!("  - softmax: {{ in: x, when: {when} }}\n"));
        assert!(message.contains(expected), "{message}");
    }
    let message = mistakes("{ x: { type: float32, shape: [2] }, w: json }", "  - top-k: { in: x, k: 1, when: w }\n");
    assert!(message.contains("with `when` it gives"), "{message}");
}

#[test]
fn optional_inputs_take_unnamed_values_only_of_their_type() {
    let inputs = "{ image: image, map: { type: float32, shape: [H, W] } }";
    let reads = |steps: &str| {
        let pipeline = open(inputs, steps).unwrap();
        let step = pipeline.plan().steps().last().unwrap().clone();
        step.input_slots().map(|slot| slot.is_some()).collect::<Vec<_>>()
    };
    // `image` is a file's bytes, and then pixels.
    assert_eq!(reads("  - find-boxes: { in: [map] }\n"), [true, false]);
    assert_eq!(reads("  - decode-image: { in: image, out: image }\n  - find-boxes: { in: [map] }\n"), [true, true]);
    let named = mistakes(inputs, "  - find-boxes: { in: [map, image] }\n");
    assert!(named.contains("bytes"), "{named}");
    let required = mistakes(inputs, "  - find-boxes: { in: [map], pixels: image }\n");
    assert!(required.contains("bytes"), "{required}");
}

#[test]
fn warns_of_a_serving_timeout_that_does_not_hold() {
    let warnings = |settings: &str| {
        let pipeline = open("{ x: { type: float32, shape: [2] } }", &format!("  - softmax: {{ in: x }}\n{settings}"));
        pipeline.unwrap().warnings().to_vec()
    };
    let warned = warnings("serving: { timeout: 2min }\n");
    assert!(
        warned[0].starts_with("`serving.timeout` is 120s, but `runtime.timeout` is 30s, which holds"),
        "{warned:?}"
    );
    for settings in ["", "runtime: { timeout: 1 }\n", "runtime: { timeout: 120 }\nserving: { timeout: 120 }\n"] {
        assert_eq!(warnings(settings), [""; 0], "{settings}");
    }
}

/// Cancels after so many looks.
struct CancelAfter(AtomicUsize);

impl CancelFlag for CancelAfter {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

/// Makes the run late once the step has begun.
struct DelayedStart;
impl Observer for DelayedStart {
    fn before(&mut self, _: &PlannedStep, _: &[Option<Value>]) {
        std::thread::sleep(Duration::from_millis(20));
    }
    fn after(&mut self, _: &PlannedStep, _: Duration, _: &[Value], _: &Context) {}
}

#[test]
fn ends_between_items_when_cancelled_or_late() {
    let pipeline =
        open(LIST, &each("max_items: 10000,", "{ json-template: { in: { x: x }, template: \"{{x}}\" } }")).unwrap();
    let request = || json!({ "xs": vec![0; 10_000] });
    let flag = Arc::new(CancelAfter(AtomicUsize::new(50)));
    let options = RunOptions { cancelled: Some(flag), ..RunOptions::default() };
    let error = run_with(&pipeline, request(), options).unwrap_err().to_string();
    let item: usize =
        error.strip_prefix("step 1.1 (json-template), item ").unwrap().split(':').next().unwrap().parse().unwrap();
    assert!(item < 50 && error.ends_with("the run was stopped"), "{error}");

    let deadline = Instant::now().checked_add(Duration::from_millis(10));
    let options = RunOptions { deadline, observer: Some(&mut DelayedStart), ..RunOptions::default() };
    let error = run_with(&pipeline, request(), options).unwrap_err().to_string();
    assert!(error.contains("timeout"), "{error}");
    assert_eq!(run(&pipeline, request())["json"].as_array().unwrap().len(), 10_000);
}

#[test]
fn models_run_items_of_equal_shape_together() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/gpux.yml");
    let open = |batch: usize| {
        let text = format!(
            "name: t\nversion: 1\nmodel: ./digits.onnx\ninputs: {{ images: {{ type: float32, shape: [N, 1, 8, 8] }} }}
pipeline:\n  - for-each: {{ in: {{ image: images }}, over: image, batch: {batch}, steps: [expand: {{ axes: 0 }}, model, squeeze] }}\n"
        );
        let (document, spec) =
            gpux_config::parse("gpux.yml", text, &Variables::empty(), &crate::source::check_step).unwrap();
        Pipeline::load(Definition::new(PathBuf::from(path), document, spec), &LoadOptions::default()).unwrap()
    };
    let images: Vec<f32> = (0..7 * 64).map(|index| (index * 31 % 97) as f32 / 97.0).collect();
    let images = Value::from(gpux_core::Tensor::new([7, 1, 8, 8], images).unwrap());
    let results = [1, 3].map(|batch| {
        let pipeline = open(batch);
        let outputs = pipeline.plan().run(vec![("images".to_owned(), images.clone())], RunOptions::default()).unwrap();
        let runs = pipeline.models().find_map(|(_, model)| Some(model.batcher()?.ok()?.sizes().by_rows()));
        (outputs, runs)
    });
    assert_eq!(results[0].0, results[1].0);
    assert_eq!(results[0].1, None);
    assert_eq!(results[1].1.clone().unwrap().into_iter().collect::<Vec<_>>(), [(1, 1), (3, 2)]);
}
