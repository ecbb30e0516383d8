//! `decode-image` against Pillow, and against OpenCV where samples have 16 bits.

use serde_json::json;

use super::Difference;
use crate::reference::{read, read_json, run_tensor, step, unpack};
use gpux_core::{Color, ElementType};

#[test]
fn formats_follow_pillow() {
    let index = read_json("image/decode/index.json");
    let files = index.as_object().unwrap();
    assert!(files.len() > 40);
    for (name, size) in files {
        let expected = unpack(&format!("image/decode/{name}.pixels.png"));
        let number = |side: &str| size[side].as_u64().unwrap() as usize;
        let mut rest = expected.as_slice();
        let mut difference = Difference::default();
        for channels in [Color::Rgb, Color::Gray, Color::Rgba] {
            let decode = step("decode-image", json!({"channels": channels.name()}));
            let tensor = run_tensor(&*decode, read(&format!("image/decode/{name}")));
            assert_eq!(tensor.shape(), [number("height"), number("width"), channels.channels()], "{name}");
            let (theirs, after) = rest.split_at(tensor.len());
            rest = after;
            difference.add(tensor.as_slice::<u8>().unwrap(), theirs);
        }
        println!("{name}: mean {:.3}, {difference:?}", difference.mean());
        // Pillow cuts off where 5 or 6 bits become 8, others round.
        let most = u8::from(matches!(name.as_str(), "16bit.bmp" | "565.bmp"));
        assert!(difference.largest <= most, "{name}: {difference:?}");
    }
}

#[test]
fn keeps_16_bit_samples() {
    for (name, file) in read_json("image/decode/deep.json").as_object().unwrap() {
        let expected: Vec<u16> = bytemuck::pod_collect_to_vec(&unpack(&format!("image/decode/{name}.pixels.png")));
        let decode = step("decode-image", json!({"channels": file["color"], "depth": 16}));
        let tensor = run_tensor(&*decode, read(&format!("image/decode/{name}")));
        assert_eq!(tensor.element(), ElementType::Uint16);
        assert_eq!(json!(tensor.shape()), file["shape"], "{name}");
        assert_eq!(tensor.as_slice::<u16>().unwrap(), &expected[..tensor.len()], "{name}");
    }
}
