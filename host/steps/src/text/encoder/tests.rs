use std::time::{Duration, Instant};

use super::*;
use crate::text::tokenizer_file::DeclaredPadding;

fn encoder(parts: &serde_json::Value) -> Encoder {
    let mut file = json!({
        "version": "1.0",
        "added_tokens": [],
        "model": { "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" },
    });
    file.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    let file = TokenizerFile {
        path: "t.json".into(),
        bytes: file.to_string().into_bytes(),
        padding: DeclaredPadding::default(),
    };
    Encoder::new(read(&file).unwrap(), &file, true, None, false).unwrap()
}

fn input(encoder: &Encoder, text: String) -> EncoderInput {
    let ports = [text_input::port("text", "")];
    encoder.read_input(&mut Inputs::new(&ports, vec![Some(text.into())])).unwrap()
}

#[test]
fn rejects_texts_that_grow_too_large() {
    let nfkc = json!({ "normalizer": { "type": "NFKC" } });
    let metaspace = json!({ "normalizer": { "type": "Replace", "pattern": { "String": " " }, "content": "▁" } });
    let long = "counted as its normalizer makes it";
    for (parts, text, why) in [
        // The growth counts only where the normalizer applies.
        (&nfkc, "b".repeat(4 << 20), None),
        (&nfkc, "\u{fdfa}".repeat(1 << 16), None),
        (&nfkc, "\u{fdfa}".repeat(1 << 18), Some(long)),
        (&metaspace, " b".repeat(1 << 20), None),
        (&metaspace, " ".repeat(3 << 19), Some(long)),
        (&json!({}), "b".repeat(4 << 20), None),
        (&json!({}), "b".repeat((4 << 20) + 1), Some("takes 4194304 at once; cut it")),
    ] {
        let encoder = encoder(parts);
        let bytes = text.len();
        let given = input(&encoder, text);
        let done = encoder.encode(given, &Deadline::default(), Encoding::len).map(drop);
        match (done, why) {
            (Ok(()), None) => {}
            (Err(StepFailure::InvalidInput(message)), Some(why)) => assert!(message.contains(why), "{message}"),
            (done, why) => panic!("{bytes} bytes: {done:?} instead of {why:?}"),
        }
    }
}

#[test]
fn slow_tokenizers_are_abandoned_at_the_deadline() {
    // The time of a word grows with the cube of its characters.
    let words = json!({
        "model": { "type": "WordPiece", "vocab": { "[UNK]": 0, "a": 1, "##a": 2 }, "unk_token": "[UNK]",
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 1_000_000 },
    });
    let encoder = encoder(&words);
    let encode = |characters: usize, deadline: &Deadline| {
        let given = input(&encoder, "a".repeat(characters));
        encoder.encode(given, deadline, Encoding::len).map(|encodings| encodings[0].get_ids().to_vec())
    };
    let within = |time: Duration| Deadline::at(Instant::now().checked_add(time));
    // On a busy machine, the deadline may pass before the work begins, which then never does.
    let is_abandoned = |exponent: u32| {
        assert_eq!(encode(4000, &within(Duration::from_millis(20 << exponent))), Err(StepFailure::Timeout));
        Arc::strong_count(&encoder.core) > 1
    };
    assert!((0..6).any(is_abandoned), "it does not go on elsewhere");
    assert_eq!(encode(3, &within(Duration::from_mins(10))).unwrap(), [1, 2, 2]);
}
