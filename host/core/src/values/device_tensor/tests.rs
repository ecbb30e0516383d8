#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::{
    Context, DeviceStep, Kind, Names, Observer, Plan, PlanBuilder, PlannedStep, Port, RunOptions, Signature, Step,
    StepFailure, Value,
};

/// Adds one. With a memory it is a step that can leave its number there.
struct Adds {
    signature: Signature,
    memory: Option<Memory>,
    /// where each run's input and output were
    seen: Mutex<Vec<&'static str>>,
}

fn adds(memory: Option<&str>) -> Arc<Adds> {
    let port = |name| Port::new(name, Kind::Tensor(TensorKind::shaped(ElementType::Int32, Vec::new())));
    Arc::new(Adds {
        signature: Signature { inputs: vec![port("x")], outputs: vec![port("y")] },
        memory: memory.map(|name| Memory { name: name.to_owned(), device: 0 }),
        seen: Mutex::default(),
    })
}

impl Adds {
    fn seen(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn number(value: i32) -> Value {
    Tensor::scalar(value).into()
}

fn read(value: &Value) -> i32 {
    value.as_tensor().unwrap().as_slice::<i32>().unwrap()[0]
}

impl Step for Adds {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: Vec<Option<Value>>, _: &mut Context) -> Result<Vec<Value>, StepFailure> {
        self.seen.lock().unwrap().push("host");
        Ok(vec![number(read(inputs[0].as_ref().unwrap()) + 1)])
    }

    fn device(&self) -> Option<&dyn DeviceStep> {
        self.memory.is_some().then_some(self)
    }
}

impl DeviceStep for Adds {
    fn output_memory(&self, _: usize) -> Option<&Memory> {
        self.memory.as_ref()
    }

    fn input_memory(&self, _: usize, given: &Kind) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| matches!(given, Kind::Tensor(_)))
    }

    fn run_placed(
        &self,
        inputs: Vec<Option<HostOrDevice<Value>>>,
        stay: &[bool],
        _: &mut Context,
    ) -> Result<Vec<HostOrDevice<Value>>, StepFailure> {
        let (from, given) = match inputs.into_iter().next().unwrap().unwrap() {
            HostOrDevice::Host(value) => ("host", read(&value)),
            HostOrDevice::Device(tensor) => ("device", *tensor.downcast_ref::<i32>().unwrap()),
        };
        let given = given + 1;
        let (seen, value) = match (from, stay[0]) {
            ("host", true) => ("host to device", None),
            ("device", true) => ("device to device", None),
            ("device", false) => ("device to host", Some(number(given))),
            _ => panic!("nothing about this run is on a device"),
        };
        self.seen.lock().unwrap().push(seen);
        let left = || HostOrDevice::Device(DeviceTensor::new(ElementType::Int32, Vec::new(), Arc::new(given)));
        Ok(vec![value.map_or_else(left, HostOrDevice::Host)])
    }
}

/// A chain of steps, each of which reads the output of the previous one.
fn chain(steps: &[&Arc<Adds>], outputs: Option<&[String]>) -> Plan {
    let mut builder = PlanBuilder::new(None);
    for (index, step) in steps.iter().enumerate() {
        let names = Names::Ordered(vec![format!("v{index}")]);
        builder.push(format!("step {index}"), (*step).clone(), None, Some(&names)).unwrap();
    }
    builder.finish(outputs).unwrap()
}

fn stays(plan: &Plan) -> Vec<bool> {
    plan.steps().iter().flat_map(|step| step.outputs_on_device().iter().copied()).collect()
}

fn run(plan: &Plan, options: RunOptions<'_>) -> Vec<i32> {
    let outputs = plan.run(vec![("x".to_owned(), number(0))], options).unwrap();
    outputs.iter().map(|(_, value)| read(value)).collect()
}

#[test]
fn values_between_models_stay_on_the_device() {
    let (first, second, third) = (adds(Some("A")), adds(Some("A")), adds(Some("A")));
    let plan = chain(&[&first, &second, &third], None);
    assert_eq!(stays(&plan), [true, true, false]);
    assert_eq!(run(&plan, RunOptions::default()), [3]);
    assert_eq!(
        [first.seen(), second.seen(), third.seen()].concat(),
        ["host to device", "device to device", "device to host"]
    );
}

#[test]
fn values_read_by_host_steps_are_copied_to_the_host() {
    let (first, second) = (adds(Some("A")), adds(Some("A")));
    let both: Vec<String> = ["v0", "v1"].map(str::to_owned).into();
    let shown = chain(&[&first, &second], Some(&both));
    assert_eq!((stays(&shown), run(&shown, RunOptions::default())), (vec![false, false], vec![1, 2]));
    assert_eq!(first.seen(), ["host"]);
    let elsewhere = chain(&[&first, &adds(Some("B"))], None);
    assert_eq!((stays(&elsewhere), run(&elsewhere, RunOptions::default())), (vec![false, false], vec![2]));
    let between = chain(&[&first, &adds(None), &second], None);
    assert_eq!((stays(&between), run(&between, RunOptions::default())), (vec![false; 3], vec![3]));
    let unread = chain(&[&first, &second], Some(&both[..1]));
    assert_eq!((stays(&unread), run(&unread, RunOptions::default())), (vec![false, false], vec![1]));
}

#[test]
fn values_with_one_host_reader_are_copied_to_the_host() {
    let named = |name: &str| Names::Ordered(vec![name.to_owned()]);
    let outputs = ["one", "other"].map(str::to_owned);
    for (one, other, stay) in [(Some("A"), None, false), (None, Some("A"), false), (Some("A"), Some("A"), true)] {
        let mut builder = PlanBuilder::new(None);
        builder.push("first".to_owned(), adds(Some("A")), None, Some(&named("v"))).unwrap();
        for (memory, name) in [(one, "one"), (other, "other")] {
            builder.push(name.to_owned(), adds(memory), Some(&named("v")), Some(&named(name))).unwrap();
        }
        let plan = builder.finish(Some(&outputs)).unwrap();
        assert_eq!(stays(&plan), [stay, false, false], "{one:?} {other:?}");
        assert_eq!(run(&plan, RunOptions::default()), [2, 2]);
    }
}

/// An observer that asks for values, or does not.
struct Watcher {
    looks: bool,
    told: Vec<usize>,
}

impl Observer for Watcher {
    fn wants_values(&self) -> bool {
        self.looks
    }

    fn after(&mut self, _: &PlannedStep, _: Duration, outputs: &[Value], _: &Context) {
        self.told.push(outputs.len());
    }
}

#[test]
fn observers_receive_values_on_the_host() {
    let (first, second) = (adds(Some("A")), adds(Some("A")));
    let plan = chain(&[&first, &second], None);
    for (looks, told, seen) in [(true, [1, 1], "host"), (false, [0, 0], "host to device")] {
        let mut watcher = Watcher { looks, told: Vec::new() };
        let options = RunOptions { observer: Some(&mut watcher), ..RunOptions::default() };
        assert_eq!(run(&plan, options), [2]);
        assert_eq!((watcher.told.as_slice(), first.seen()), (told.as_slice(), vec![seen]));
    }
}
