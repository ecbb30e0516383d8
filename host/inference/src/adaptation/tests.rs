#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use Dim::{Dynamic, Fixed};
use ElementType::{Bool, Float16, Float32, Float64, Int32, Int64, String, Uint8};
use gpux_core::Deadline;

fn named() -> Dim {
    Dim::Named("N".into())
}

fn given(element: ElementType, shape: &[usize], layout: Option<Layout>) -> TensorKind {
    TensorKind { layout, ..TensorKind::shaped(element, shape.iter().copied().map(Fixed).collect::<Vec<_>>()) }
}

fn check(given: &TensorKind, wanted: &[Dim], element: ElementType) -> Result<Vec<Adaptation>, std::string::String> {
    plan_adaptations(given, &TensorKind::shaped(element, wanted))
        .map(Adaptations::into_vec)
        .map_err(|error| error.to_string())
}

#[test]
fn adapts_layout_batch_axis_and_element_type_of_images() {
    let digits = given(Float32, &[8, 8, 1], Some(Layout::Hwc));
    let wanted = [named(), Fixed(1), Fixed(8), Fixed(8)];
    assert_eq!(check(&digits, &wanted, Float32).unwrap(), [Adaptation::Layout(Layout::Chw), Adaptation::Batch]);
    let photo = given(Uint8, &[224, 200, 3], Some(Layout::Hwc));
    let open = [Dynamic, Fixed(3), Dynamic, Dynamic];
    let all = [Adaptation::Layout(Layout::Chw), Adaptation::Batch, Adaptation::Cast(Float32)];
    assert_eq!(check(&photo, &open, Float32).unwrap(), all);
    let last = [Fixed(1), Dynamic, Dynamic, Fixed(3)];
    assert_eq!(check(&photo, &last, Uint8).unwrap(), [Adaptation::Batch]);
    let batch = given(Float32, &[2, 224, 200, 3], Some(Layout::Hwc));
    assert_eq!(check(&batch, &open, Float32).unwrap(), [Adaptation::Layout(Layout::Chw)]);
}

#[test]
fn accepts_dynamic_dimensions_at_plan_time() {
    let photo = TensorKind::image(Float32, None, None, Some(3));
    let wanted = [named(), Fixed(3), Fixed(640), Fixed(640)];
    assert_eq!(check(&photo, &wanted, Float32).unwrap(), [Adaptation::Layout(Layout::Chw), Adaptation::Batch]);
    assert_eq!(check(&TensorKind::of_elements(Float32), &wanted, Float32).unwrap(), []);
}

#[test]
fn rejects_ambiguous_adaptations() {
    let photo = given(Float32, &[64, 64, 3], Some(Layout::Hwc));
    let error = check(&photo, &[named(), Dynamic, Dynamic, Dynamic], Float32).unwrap_err();
    assert!(error.contains("does not say whether it takes HWC or CHW"), "{error}");
}

#[test]
fn names_the_axis_that_does_not_fit() {
    let error =
        check(&given(Float32, &[9, 8, 1], Some(Layout::Hwc)), &[named(), Fixed(1), Fixed(8), Fixed(8)], Float32);
    assert!(error.unwrap_err().ends_with("axis 1 is 9, not 8 after layout to CHW"));
    let error = check(&given(Float32, &[63], None), &[named(), Fixed(64)], Float32).unwrap_err();
    assert!(error.ends_with("axis 0 is 63, not 64"), "{error}");
    let error = check(&given(Float32, &[1, 1, 64], None), &[named(), Fixed(64)], Float32).unwrap_err();
    assert!(error.contains("it has 3 axes, not 2; drop its first axis"), "{error}");
    let error = check(&given(Float32, &[64], None), &[Fixed(2), Fixed(64)], Float32).unwrap_err();
    assert!(error.contains("it has 1 axes, not 2"), "{error}");
}

#[test]
fn allows_only_casts_that_keep_meaning() {
    for (from, to) in [(Uint8, Float32), (Int64, Float32), (Float32, Float16), (Float64, Float32), (Int32, Int64)] {
        assert_eq!(check(&given(from, &[2], None), &[Fixed(2)], to).unwrap(), [Adaptation::Cast(to)], "{from} {to}");
    }
    for (from, to) in [(Float32, Int64), (Int64, Int32), (Bool, Float32), (String, Float32), (Float32, Bool)] {
        let error = check(&given(from, &[2], None), &[Fixed(2)], to).unwrap_err();
        assert!(error.contains("could lose what the numbers mean"), "{error}");
    }
}

#[test]
fn adapts_like_numpy() {
    let data: Vec<u8> = (0..12).collect();
    let tensor = Tensor::new([2, 2, 3], data.clone()).unwrap();
    let chw =
        apply(tensor.clone(), &[Adaptation::Layout(Layout::Chw), Adaptation::Batch, Adaptation::Cast(Float32)], &())
            .unwrap();
    let expected = tensor.permute(&[2, 0, 1]).unwrap().reshape([1, 3, 2, 2]).unwrap().cast(Float32).unwrap();
    assert_eq!(chw.shape(), expected.shape());
    assert_eq!(chw.data(), expected.data());
    let back = apply(chw, &[Adaptation::Layout(Layout::Hwc)], &()).unwrap();
    assert_eq!(back.shape(), [1, 2, 2, 3]);
    assert_eq!(back.cast(Uint8).unwrap().as_slice::<u8>().unwrap(), data);
    let batch = Tensor::new([2, 1, 2, 3], data).unwrap();
    let moved = apply(batch.clone(), &[Adaptation::Layout(Layout::Chw)], &()).unwrap();
    assert_eq!(moved.data(), batch.permute(&[0, 3, 1, 2]).unwrap().data());
}

#[test]
fn stops_adapting_at_the_deadline() {
    let photo = Tensor::new([1 << 10, 1 << 10, 3], vec![0_u8; 3 << 20]).unwrap();
    for adaptations in [[Adaptation::Layout(Layout::Chw)], [Adaptation::Cast(Float32)]] {
        let run = |looks| apply(photo.clone(), &adaptations, &Deadline::exceeded_after(looks));
        assert_eq!(run(1), Err(TensorError::Stopped), "{adaptations:?}");
        assert!(run(9).is_ok(), "{adaptations:?}");
    }
}

#[test]
fn does_not_copy_single_channel_images() {
    let tensor = Tensor::new([8, 8, 1], vec![0_f32; 64]).unwrap();
    let at = tensor.as_slice::<f32>().unwrap().as_ptr();
    let moved = apply(tensor, &[Adaptation::Layout(Layout::Chw), Adaptation::Batch], &()).unwrap();
    assert_eq!(moved.shape(), [1, 1, 8, 8]);
    assert_eq!(moved.as_slice::<f32>().unwrap().as_ptr(), at);
}
