#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::testing::{embedded, engines, step, tensor};
use gpux_core::{DeviceTensor, Layout, Metadata, Names, PlanBuilder, PlanInput, Port};

#[test]
fn adapts_gray_images() {
    for engine in engines() {
        let conv = step(engine, "conv").unwrap();
        let metadata = Metadata { layout: Some(Layout::Hwc), ..Metadata::default() };
        let image = tensor(&[8, 8, 1], vec![0.5_f32; 64]).with_metadata(metadata);
        let given = [Some(Kind::Tensor(TensorKind::of(&image)))];
        let kinds = conv.infer(&given).unwrap();
        assert_eq!(kinds[0].to_string(), "tensor float32[1, 3]");
        let changes = ["layout to CHW", "add a batch axis"].map(str::to_owned).to_vec();
        assert_eq!(conv.conversions(&given), [("image".to_owned(), changes)]);
        let output = conv.run(vec![Some(Value::Tensor(image))], &mut Context::default()).unwrap();
        assert_eq!(output[0].as_tensor().unwrap().shape(), [1, 3]);
        let bytes = tensor(&[8, 8, 1], vec![1_u8; 64]).with_metadata(metadata);
        assert!(conv.run(vec![Some(Value::Tensor(bytes))], &mut Context::default()).is_ok());
    }
}

#[test]
fn rejects_device_tensors_that_do_not_fit() {
    for engine in engines() {
        let conv = step(engine, "conv").unwrap();
        let run = |shape: &[usize]| {
            let tensor = DeviceTensor::new(ElementType::Float32, shape.to_vec(), Arc::new(()));
            let inputs = vec![Some(HostOrDevice::Device(tensor))];
            conv.run_placed(inputs, &[false], &mut Context::default()).unwrap_err().to_string()
        };
        assert_eq!(
            run(&[1, 8, 8]),
            "input `image` lies on the device as tensor float32[1, 8, 8], which is not what the model before declares: \
             it cannot be changed there (add a batch axis)"
        );
        assert!(run(&[1, 1, 8, 9]).contains("axis 3 is 9, not 8"));
        assert!(!run(&[1, 1, 8, 8]).contains("declares"), "it is for the engine to say");
    }
}

#[test]
fn infers_adaptations_per_use() {
    let conv: Arc<dyn Step> = Arc::new(step(embedded(), "conv").unwrap());
    let image = |shape: &[usize], layout| {
        let shape = Some(shape.iter().copied().map(Dim::Fixed).collect());
        let kind = Kind::Tensor(TensorKind { shape, layout, ..TensorKind::of_elements(ElementType::Float32) });
        PlanInput {
            port: Port::new(if layout.is_some() { "photo" } else { "raw" }, kind),
            default: None,
            columns: None,
        }
    };
    let inputs = vec![image(&[2, 1, 8, 8], None), image(&[8, 8, 1], Some(Layout::Hwc))];
    let mut plan = PlanBuilder::new(Some(inputs));
    for name in ["raw", "photo"] {
        plan.push(name, conv.clone(), Some(&Names::Ordered(vec![name.to_owned()])), None).unwrap();
    }
    let plan = plan.finish(None).unwrap();
    let changes: Vec<_> = plan.steps().iter().map(|step| step.conversions.len()).collect();
    assert_eq!(changes, [0, 1], "the picture alone is changed");
}

#[test]
fn describes_wrong_inputs() {
    let conv = step(embedded(), "conv").unwrap();
    let run = |inputs| conv.run(inputs, &mut Context::default()).unwrap_err();
    let fault = |value: Value| {
        let failure = run(vec![Some(value)]);
        assert!(matches!(failure, StepFailure::InvalidInput(_)));
        failure.to_string()
    };
    assert_eq!(
        fault(Value::Tensor(tensor(&[1, 1, 8, 9], vec![0_f32; 72]))),
        "takes tensor float32[N, 1, 8, 8], but gets tensor float32[1, 1, 8, 9]: input `image`: axis 3 is 9, not 8"
    );
    assert!(fault(Value::Tensor(tensor(&[64], vec![0_f32; 64]))).contains("it has 1 axes, not 4"));
    assert!(fault(Value::Tensor(tensor(&[1, 1, 8, 8], vec![true; 64]))).contains("could lose what the numbers mean"));
    assert!(fault(Value::from("text")).contains("but gets text: input `image`"));
    assert!(run(vec![None]).to_string().contains("the model's input `image` is missing; it takes tensor float32"));
    assert!(run(vec![]).to_string().contains("is missing"));
    assert!(run(vec![None, None]).to_string().contains("takes 1 inputs, but gets 2"));
    let planned = conv.infer(&[Some(Kind::Tensor(TensorKind::of_elements(ElementType::String)))]).unwrap_err();
    assert!(planned.to_string().contains("input `image`: the element type is string"), "{planned}");
    assert!(conv.infer(&[Some(Kind::Json)]).is_err() && conv.infer(&[None]).is_err());
}
