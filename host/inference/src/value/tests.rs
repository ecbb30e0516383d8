#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn float() -> OnnxType {
    OnnxType::Tensor { kind: TensorKind::of_elements(ElementType::Float32), narrow: None }
}

fn of(element: ElementType) -> OnnxType {
    OnnxType::Tensor { kind: TensorKind::of_elements(element), narrow: None }
}

fn sequence(inner: OnnxType) -> OnnxType {
    OnnxType::Sequence(Box::new(inner))
}

fn optional(inner: OnnxType) -> OnnxType {
    OnnxType::Optional(Box::new(inner))
}

fn same(json: &Json, kind: &OnnxType) {
    let value = OnnxValue::from_json(json.clone(), kind).unwrap();
    assert_eq!(value.to_json(), *json, "{kind}");
}

#[test]
fn round_trips_json() {
    let names = OnnxType::Map { key: ElementType::String, value: ElementType::Float32 };
    let numbers = OnnxType::Map { key: ElementType::Int64, value: ElementType::Int64 };
    let words = OnnxType::Map { key: ElementType::Int64, value: ElementType::String };
    let doubles = OnnxType::Map { key: ElementType::String, value: ElementType::Float64 };
    same(&json!([{ "setosa": 0.98, "ü": 0.02, "": "NaN" }, {}]), &sequence(names));
    same(&json!({ "9223372036854775807": 9_007_199_254_740_993_i64, "-1": i64::MIN }), &numbers);
    same(&json!({ "0": "", "7": "sieben\u{0}" }), &words);
    same(&json!({ "x": 0.1, "y": "-Infinity" }), &doubles);
    same(&json!([[0.1, "NaN"], [[3.5]], 7.0]), &sequence(float()));
    same(&json!([]), &sequence(of(ElementType::String)));
    same(&json!([[true], [[], []]]), &sequence(of(ElementType::Bool)));
    same(&json!([{ "type": "int64", "shape": [0, 3], "data": [] }, [1, 2]]), &sequence(of(ElementType::Int64)));
    same(&json!(null), &optional(sequence(float())));
    same(&json!([[u64::MAX]]), &optional(sequence(of(ElementType::Uint64))));
}

#[test]
fn locates_wrong_json() {
    let fault = |json: Json, kind: &OnnxType| OnnxValue::from_json(json, kind).unwrap_err().to_string();
    let maps = sequence(OnnxType::Map { key: ElementType::Int64, value: ElementType::Float32 });
    assert_eq!(fault(json!({}), &maps), "takes a list, but this is an object");
    assert_eq!(fault(json!([{}, 3]), &maps), "at [1]: takes an object, but this is the number 3");
    assert_eq!(fault(json!([{ "one": 1 }]), &maps), "at [0]: the key \"one\" is not an int64");
    assert_eq!(
        fault(json!([{ "1": "x" }]), &maps),
        "at [0][\"1\"]: takes float32 elements, but this is the string \"x\""
    );
    assert_eq!(fault(json!([{ "1": [1, 2] }]), &maps), "at [0][\"1\"]: 2 elements do not fill the shape []");
    assert_eq!(fault(json!([null]), &maps), "at [0]: takes an object, but this is null");
    assert_eq!(fault(json!([[1], [300]]), &sequence(of(ElementType::Uint8))), "at [1]: 300 is not a uint8");
    let explicit = json!([{ "type": "int64", "shape": [1], "data": [1] }]);
    assert!(fault(explicit, &sequence(float())).contains("element type is int64, not float32"));
}

/// Every tensor, whatever its type and shape.
fn tensors() -> impl Strategy<Value = Tensor> {
    let shapes = proptest::collection::vec(0_usize..4, 0..4);
    (shapes, proptest::sample::select(&ElementType::ALL[..]), any::<u64>()).prop_map(|(shape, element, seed)| {
        let count: usize = shape.iter().product();
        let bits = |index: usize| seed.rotate_left(index as u32 * 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if element == ElementType::String {
            let texts = (0..count).map(|index| char::from_u32(bits(index) as u32 % 0xd800).into_iter().collect());
            return Tensor::new(shape, texts.collect::<Vec<String>>()).unwrap();
        }
        let size = element.size().unwrap();
        let bytes = (0..count).flat_map(|index| bits(index).to_le_bytes()[..size].to_vec());
        let bytes: Vec<u8> = bytes.map(|byte| if element == ElementType::Bool { byte & 1 } else { byte }).collect();
        Tensor::from_bytes(element, shape, &bytes).unwrap()
    })
}

proptest! {
    #[test]
    fn round_trips_tensors_in_sequences(tensor in tensors()) {
        let kind = sequence(of(tensor.element()));
        let json = OnnxValue::Sequence(vec![OnnxValue::Tensor(tensor.clone())]).to_json();
        let text = json.to_string();
        let read = OnnxValue::from_json(serde_json::from_str(&text).unwrap(), &kind).unwrap();
        let OnnxValue::Sequence(items) = &read else { panic!("{read:?}") };
        let OnnxValue::Tensor(item) = &items[0] else { panic!("{items:?}") };
        prop_assert_eq!(item.shape(), tensor.shape());
        prop_assert_eq!(item.element(), tensor.element());
        // NaN is not equal to itself, and has one name in JSON: compare the JSON.
        prop_assert_eq!(&read.to_json().to_string(), &text);
        if !text.contains("NaN") {
            prop_assert_eq!(item, &tensor);
        }
    }
}
