//! Plans of small real steps: how values find their way.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::*;

/// Adds up its inputs, element by element.
struct Sum {
    signature: Signature,
}

fn numbers(length: Option<usize>) -> Kind {
    Kind::Tensor(TensorKind::shaped(ElementType::Int32, vec![length.map_or(Dim::Dynamic, Dim::Fixed)]))
}

fn sum(inputs: &[&str], outputs: &[&str]) -> Arc<dyn Step> {
    let port = |name: &&str| match name.strip_suffix('?') {
        Some(name) => Port::optional(name, numbers(None)),
        None => Port::new(*name, numbers(None)),
    };
    let signature =
        Signature { inputs: inputs.iter().map(port).collect(), outputs: outputs.iter().map(port).collect() };
    Arc::new(Sum { signature })
}

impl Step for Sum {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: Vec<Option<Value>>, context: &mut Context) -> Result<Vec<Value>, StepFailure> {
        context.log.push("adding".to_owned());
        let mut total: i32 = 0;
        for value in inputs.iter().flatten() {
            let numbers = value.as_tensor().and_then(Tensor::as_slice::<i32>).unwrap();
            total = numbers
                .iter()
                .try_fold(total, |total, number| total.checked_add(*number))
                .ok_or_else(|| StepFailure::InvalidInput("the sum does not fit 32 bits".to_owned()))?;
        }
        Ok(self.signature.outputs.iter().map(|_| tensor(&[total])).collect())
    }
}

fn tensor(numbers: &[i32]) -> Value {
    Tensor::new([numbers.len()], numbers.to_vec()).unwrap().into()
}

fn number(outputs: &Outputs, name: &str) -> i32 {
    let (_, value) = outputs.iter().find(|(known, _)| known == name).unwrap();
    value.as_tensor().unwrap().as_slice::<i32>().unwrap()[0]
}

fn ordered(names: &[&str]) -> Names {
    Names::Ordered(names.iter().map(ToString::to_string).collect())
}

#[test]
fn connects_a_list_of_steps_in_order() {
    let mut builder = PlanBuilder::new(None);
    builder.push("first", sum(&["x"], &["y"]), None, None).unwrap();
    builder.push("second", sum(&["anything"], &["z"]), None, None).unwrap();
    let plan = builder.finish(None).unwrap();
    assert_eq!(plan.inputs()[0].port.name, "x");
    let outcome = plan.run(vec![("x".into(), tensor(&[1, 2]))], RunOptions::default()).unwrap();
    assert_eq!(number(&outcome, "z"), 3);
}

#[test]
fn names_connect_arbitrary_graphs() {
    let mut builder = PlanBuilder::new(None);
    builder.push("both", sum(&["a", "b"], &["x", "y"]), None, Some(&ordered(&["left"]))).unwrap();
    let by_port = Names::ByPort(vec![("p".into(), "left".into()), ("q".into(), "a".into())]);
    builder.push("mixed", sum(&["p", "q", "r?"], &["z"]), Some(&by_port), None).unwrap();
    let plan = builder.finish(Some(&["z".into(), "y".into(), "b".into()])).unwrap();
    let request = vec![("b".into(), tensor(&[10])), ("a".into(), tensor(&[1]))];
    let mut trace = RunTrace::default();
    let outcome = plan.run(request, RunOptions { observer: Some(&mut trace), ..RunOptions::default() }).unwrap();
    assert_eq!([number(&outcome, "z"), number(&outcome, "y"), number(&outcome, "b")], [12, 11, 10]);
    assert_eq!((trace.steps[0].bytes_in, trace.steps[0].bytes_out), (8, 8));
    assert_eq!(trace.steps[1].log, ["adding"]);
}

#[test]
fn reports_why_wiring_fails() {
    let mut builder = PlanBuilder::new(None);
    builder.push("two", sum(&["a"], &["x", "y"]), None, None).unwrap();
    let ambiguous = builder.push("one", sum(&["z"], &["w"]), None, None).unwrap_err();
    assert_eq!(ambiguous.message, "nothing before this step gives `z` (tensor int32[?])");
    assert_eq!(ambiguous.hint.as_deref(), Some("there is `a`, `x`, `y`; name one with `in:`"));
    let unknown = Names::ByPort(vec![("q".into(), "x".into())]);
    let error = builder.push("one", sum(&["z"], &["w"]), Some(&unknown), None).unwrap_err();
    assert_eq!((error.at, error.message.as_str()), (PortSide::Inputs, "the step has no `q`"));
    let error = builder.push("one", sum(&["z"], &["w"]), Some(&ordered(&["x"])), Some(&ordered(&["v", "w"])));
    assert_eq!(error.unwrap_err().at, PortSide::Outputs);
    let faults = builder.finish(Some(&["none".into()])).err().unwrap();
    assert_eq!(faults[0].1.message, "no step gives `none`");

    let input = PlanInput { port: Port::new("t", Kind::Text), default: None, columns: None };
    let mut builder = PlanBuilder::new(Some(vec![input]));
    let error = builder.push("one", sum(&["z"], &["w"]), None, None).unwrap_err();
    assert_eq!(error.message, "takes tensor int32[?], but gets text");
}

#[test]
fn validates_requests_before_running_steps() {
    let input = |name: &str, default| PlanInput { port: Port::new(name, numbers(Some(1))), default, columns: None };
    let mut builder = PlanBuilder::new(Some(vec![input("a", None), input("b", Some(tensor(&[5])))]));
    builder.push("sum", sum(&["a", "b"], &["x"]), None, None).unwrap();
    let plan = builder.finish(None).unwrap();
    let run = |values| plan.run(values, RunOptions::default());
    assert_eq!(number(&run(vec![("a".into(), tensor(&[1]))]).unwrap(), "x"), 6);
    let message = |values| run(values).unwrap_err().to_string();
    assert_eq!(message(vec![]), "input `a`: it is missing; it takes tensor int32[1]");
    assert_eq!(message(vec![("c".into(), tensor(&[1]))]), "input `c`: the pipeline has none; it takes `a`, `b`");
    assert_eq!(message(vec![("a".into(), tensor(&[1])), ("a".into(), tensor(&[1]))]), "input `a`: it is given twice");
    assert!(message(vec![("a".into(), tensor(&[1, 2]))]).ends_with("axis 0 is 2, not 1"));
    assert!(message(vec![("a".into(), "text".into())]).ends_with("but gets text"));
}

#[test]
fn errors_name_the_failing_step_and_keep_its_log() {
    let mut builder = PlanBuilder::new(None);
    builder.push("fine", sum(&["x"], &["x"]), None, None).unwrap();
    builder.push("adder", sum(&["x", "big"], &["y"]), None, None).unwrap_err();
    let mut builder = PlanBuilder::new(None);
    builder.push("adder", sum(&["x", "big"], &["y"]), None, None).unwrap();
    let plan = builder.finish(None).unwrap();
    let values = || vec![("x".into(), tensor(&[i32::MAX])), ("big".into(), tensor(&[1]))];
    let error = plan.run(values(), RunOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "step 1 (adder): the sum does not fit 32 bits");
    assert!(matches!(error, RunError::Step(error) if error.log == ["adding"]));

    let past = Instant::now().checked_sub(Duration::from_secs(1));
    let late = RunOptions { deadline: past, ..RunOptions::default() };
    assert!(plan.run(values(), late).unwrap_err().to_string().contains("timeout"));
    let stopped = RunOptions { cancelled: Some(Arc::new(AtomicBool::new(true))), ..RunOptions::default() };
    assert!(plan.run(values(), stopped).unwrap_err().to_string().contains("stopped"));
}

#[test]
fn moves_values_to_their_last_reader() {
    /// Fails unless it could write to its input in place.
    struct InPlace(Signature);
    impl Step for InPlace {
        fn signature(&self) -> &Signature {
            &self.0
        }
        fn run(&self, inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
            let Some(Some(Value::Bytes(mut bytes))) = inputs.into_iter().next() else {
                return Err(StepFailure::Failed("no bytes".to_owned()));
            };
            Arc::get_mut(&mut bytes).ok_or_else(|| StepFailure::Failed("shared".to_owned()))?.reverse();
            Ok(vec![Value::Bytes(bytes)])
        }
    }
    let step = || Arc::new(InPlace(Signature::unary(Port::new("b", Kind::Bytes), Port::new("b", Kind::Bytes))));
    let mut builder = PlanBuilder::new(None);
    builder.push("first", step(), None, None).unwrap();
    builder.push("second", step(), None, None).unwrap();
    let plan = builder.finish(None).unwrap();
    let outcome = plan.run(vec![("b".into(), vec![1, 2].into())], RunOptions::default()).unwrap();
    assert_eq!(outcome[0].1, Value::from(vec![1, 2]));
}
