use super::*;
use crate::reference;
use crate::text::tokenizer_file::DeclaredPadding;
use gpux_core::{Context, Dim, ElementType, Tensor, TensorKind};

fn file(bytes: &[u8]) -> TokenizerFile {
    TokenizerFile { path: "t.json".into(), bytes: bytes.to_vec(), padding: DeclaredPadding::default() }
}

fn build(name: &str, mut options: serde_json::Value) -> Result<BuiltinStep<Tokenize>, BuildError> {
    options["tokenizer"] = json!(name);
    reference::check_options(builtin(), &options)?;
    Tokenize::new(
        ports::options(options)?,
        &file(&reference::read(&format!("tokenize/{name}.json"))),
        Prompts::default(),
    )
}

fn run(step: &dyn Step, inputs: Vec<Value>) -> Result<Vec<Vec<i64>>, StepFailure> {
    let outputs = step.run(inputs.into_iter().map(Some).collect(), &mut Context::default())?;
    Ok(outputs.iter().map(|value| value.as_tensor().unwrap().as_slice::<i64>().unwrap().to_vec()).collect())
}

#[test]
fn accepts_every_form_of_text() {
    let step = build("wordpiece", json!({})).unwrap();
    let text = run(&step, vec!["the fox".into()]).unwrap();
    let strings = Tensor::new([1], vec!["the fox".to_owned()]).unwrap();
    for value in [json!("the fox").into(), json!(["the fox"]).into(), Value::Tensor(strings)] {
        assert_eq!(run(&step, vec![value]).unwrap(), text);
    }
    for value in [
        json!([]).into(),
        json!(["a", 1]).into(),
        json!({"text": "a"}).into(),
        json!(null).into(),
        vec![1_u8].into(),
        Value::Tensor(Tensor::new([1], vec![1_i64]).unwrap()),
        Value::Tensor(Tensor::new([0], Vec::<String>::new()).unwrap()),
    ] {
        let error = run(&step, vec![value]).unwrap_err();
        assert!(error.to_string().contains("takes text or a list of texts"), "{error}");
    }
    let error = run(&step, vec![json!(["a", "b"]).into(), json!(["c"]).into()]).unwrap_err();
    assert!(error.to_string().contains("`text` holds 2 texts, but `pair` 1"), "{error}");
    assert!(run(&step, vec![]).is_err());
}

#[test]
fn pairs_one_text_with_each_of_a_list() {
    let step = build("wordpiece", json!({"max_length": 12})).unwrap();
    let documents = json!(["the fox", "a lazy dog jumps", ""]);
    let queries = json!(["the dog", "the dog", "the dog"]);
    let expected = run(&step, vec![queries.clone().into(), documents.clone().into()]).unwrap();
    assert_eq!(run(&step, vec!["the dog".into(), documents.clone().into()]).unwrap(), expected);
    assert_eq!(run(&step, vec![json!("the dog").into(), documents.clone().into()]).unwrap(), expected);
    let expected = run(&step, vec![documents.clone().into(), queries.into()]).unwrap();
    assert_eq!(run(&step, vec![documents.clone().into(), "the dog".into()]).unwrap(), expected);

    let error = run(&step, vec![json!(["the dog"]).into(), documents.into()]).unwrap_err();
    assert!(error.to_string().contains("`text` holds 1 texts, but `pair` 3; give one text"), "{error}");
    let many = json!(vec![""; 1 << 10]);
    let error = run(&step, vec!["a".repeat(1 << 17).as_str().into(), many.clone().into()]).unwrap_err();
    assert!(error.to_string().contains("the text is 134217728 bytes"), "{error}");
    let declared = step.buffers(&[Some("a".repeat(1 << 10).as_str().into()), Some(many.into())]);
    assert!(declared > 512 << 20, "{declared}");

    let infer = |kinds: [Kind; 2]| step.infer(&kinds.map(Some)).unwrap()[0].to_string();
    assert_eq!(infer([Kind::Text, Kind::Text]), "tensor int64[1, ?]");
    assert_eq!(infer([Kind::Text, Kind::Json]), "tensor int64[?, ?]");
    let three = Kind::Tensor(TensorKind::shaped(ElementType::String, [Dim::Fixed(3)]));
    assert_eq!(infer([Kind::Text, three]), "tensor int64[3, ?]");
}

#[test]
fn counts_truncated_texts() {
    let truncated = |options, inputs: Vec<Value>| {
        let (step, mut context) = (build("wordpiece", options).unwrap(), Context::default());
        step.run(inputs.into_iter().map(Some).collect(), &mut context).unwrap();
        context.texts.truncated
    };
    let length = run(&build("wordpiece", json!({})).unwrap(), vec!["the fox the fox".into()]).unwrap()[0].len();
    let texts = || vec![json!(["the fox the fox", "the", "the fox the fox the"]).into()];
    for side in ["left", "right"] {
        for (max_length, expected) in [(length + 1, 0), (length, 1), (length - 1, 2)] {
            let options = json!({"max_length": max_length, "truncation_side": side});
            assert_eq!(truncated(options, texts()), expected, "{side} {max_length} of {length}");
        }
    }
    let pair = || vec!["the fox the fox".into(), "the fox".into()];
    assert_eq!(truncated(json!({"max_length": 5}), pair()), 1);
    assert_eq!(truncated(json!({"max_length": 5, "truncation": false}), pair()), 0);
}

#[test]
fn infers_batch_and_length() {
    let infer = |options, kind| {
        build("wordpiece", options).unwrap().infer(&[Some(kind), None]).map(|kinds| kinds[0].to_string())
    };
    assert_eq!(infer(json!({}), Kind::Text).unwrap(), "tensor int64[1, ?]");
    assert_eq!(infer(json!({"max_length": 10}), Kind::Json).unwrap(), "tensor int64[?, ?]");
    let padded = json!({"max_length": 10, "padding": "max_length", "pad_to_multiple_of": 8});
    assert_eq!(infer(padded, Kind::Text).unwrap(), "tensor int64[1, 16]");
    let strings = |dim| Kind::Tensor(TensorKind::shaped(ElementType::String, [dim]));
    assert_eq!(infer(json!({}), strings(Dim::Fixed(3))).unwrap(), "tensor int64[3, ?]");
    assert!(infer(json!({}), Kind::Bytes).is_err());
    assert!(infer(json!({}), Kind::Tensor(TensorKind::of_elements(ElementType::Int64))).is_err());
}

#[test]
fn pads_as_the_files_beside_the_tokenizer_declare() {
    let bytes = reference::read("tokenize/wordpiece.json");
    let ids = |token: Option<&str>, left: Option<bool>| {
        let padding = DeclaredPadding { token: token.map(str::to_owned), left };
        let file = TokenizerFile { padding, ..file(&bytes) };
        let step =
            Tokenize::new(ports::options(json!({"tokenizer": "t.json"})).unwrap(), &file, Prompts::default()).unwrap();
        run(&step, vec![json!(["the", "the the"]).into()]).unwrap().remove(0)
    };
    let usual = ids(None, None);
    let [cls, the, sep, pad, ..] = usual[..] else { panic!("{usual:?}") };
    assert_eq!(usual, [cls, the, sep, pad, cls, the, the, sep]);
    assert_eq!(ids(Some("[SEP]"), Some(true)), [sep, cls, the, sep, cls, the, the, sep]);
    // A token that the tokenizer does not have.
    assert_eq!(ids(Some("<none>"), Some(false)), usual);
}

#[test]
fn ignores_truncation_and_padding_of_the_file() {
    let unlimited = reference::read_json("tokenize/wordpiece.json");
    let mut limited = unlimited.clone();
    limited["truncation"] = json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 2});
    limited["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": 16,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"});
    let text = "the quick brown fox jumps over the lazy dog ".repeat(9);
    for mut options in [
        json!({}),
        json!({"max_length": 12, "truncation": false}),
        json!({"max_length": 40, "truncation": "only_second"}),
        json!({"max_length": 40, "truncation_side": "left", "word_ids": true}),
        json!({"add_special_tokens": false, "offsets": true}),
    ] {
        options["tokenizer"] = json!("t");
        for inputs in [vec![text.as_str().into()], vec!["what?".into(), text.as_str().into()]] {
            let given = [&unlimited, &limited].map(|json| {
                let options = ports::options(options.clone()).unwrap();
                run(
                    &Tokenize::new(options, &file(json.to_string().as_bytes()), Prompts::default()).unwrap(),
                    inputs.clone(),
                )
            });
            assert_eq!(given[0], given[1], "{options}");
        }
    }
}

#[test]
fn rejects_invalid_options() {
    for (options, option) in [
        (json!({"max_length": 0}), "max_length"),
        (json!({"max_length": 1}), "max_length"),
        (json!({"max_length": 1_u64 << 40}), "max_length"),
        (json!({"truncation": true}), "truncation"),
        (json!({"truncation": "only_second"}), "truncation"),
        (json!({"padding": "max_length"}), "padding"),
        (json!({"pad_to_multiple_of": 0}), "pad_to_multiple_of"),
        (json!({"pad_token": "[NONE]"}), "pad_token"),
    ] {
        assert_eq!(build("wordpiece", options.clone()).err().unwrap().option, [option], "{options}");
    }
    assert!(build("wordpiece", json!({"max_length": 1, "add_special_tokens": false})).is_ok());
    assert!(build("wordpiece", json!({"max_length": 1, "truncation": false})).is_ok());
}

#[test]
fn rejects_batches_of_unequal_lengths_without_padding() {
    let batch = || vec![json!(["a", "a much longer text"]).into()];
    let error = run(&build("wordpiece", json!({"padding": "none"})).unwrap(), batch()).unwrap_err();
    assert!(error.to_string().contains("set `padding: longest`"), "{error}");
    let short = build("wordpiece", json!({"max_length": 2})).unwrap();
    assert_eq!(run(&short, batch()).unwrap()[0], [2, 3, 2, 3], "only [CLS] and [SEP] fit");
    let error = run(&short, vec!["a".into(), "b".into()]).unwrap_err();
    assert!(error.to_string().contains("special tokens alone are 3"), "{error}");
    let left = build("bpe", json!({"max_length": 3, "padding": "max_length"})).unwrap();
    assert_eq!(run(&left, vec!["a".into()]).unwrap()[1], [0, 0, 1], "the file says: from the left");
}

#[test]
fn returns_requested_extra_outputs() {
    let all = json!({"offsets": true, "special_tokens_mask": true, "sequence_ids": true, "word_ids": true});
    let step = build("wordpiece", all).unwrap();
    let names: Vec<_> = step.signature().outputs.iter().skip(3).map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["offsets", "special_tokens_mask", "sequence_ids", "word_ids"]);
    let kinds = step.infer(&[Some(Kind::Text), None]).unwrap();
    assert_eq!(kinds[3].to_string(), "tensor int64[1, ?, 2]");
    let given = run(&step, vec!["the fox".into(), "a fox".into()]).unwrap();
    assert_eq!(given[5].iter().filter(|id| **id == -1).count(), 3, "[CLS] and two [SEP]");
    assert_eq!(given[6].len(), given[0].len());
    assert_eq!(given[3].len(), 2 * given[0].len());
}

#[test]
fn impossible_truncation_is_invalid_input() {
    let step = build("wordpiece", json!({"max_length": 6, "truncation": "only_second"})).unwrap();
    let long = "the quick brown fox jumps over the lazy dog";
    assert!(run(&step, vec!["the fox".into()]).is_ok(), "nothing needs to be cut");
    for inputs in [vec![long.into()], vec![long.into(), "fox".into()]] {
        assert!(matches!(run(&step, inputs), Err(StepFailure::InvalidInput(_))));
    }
}

#[test]
fn rejects_too_much_text() {
    let step = build("wordpiece", json!({"max_length": 1 << 20, "padding": "max_length"})).unwrap();
    let error = run(&step, vec![json!(vec![""; 17]).into()]).unwrap_err();
    assert!(error.to_string().contains("tokens"), "{error}");
    let error = run(&step, vec!["a".repeat(text_input::MAX_TEXT + 1).into()]).unwrap_err();
    assert!(error.to_string().contains("bytes"), "{error}");
}

#[test]
fn rejects_hostile_files_and_texts() {
    let options = || Options { max_length: None, ..ports::options(json!({"tokenizer": "t"})).unwrap() };
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for bytes in [&b""[..], b"{}", b"null", &[0xff, 0xfe], deep.as_bytes(), b"{\"model\": {\"type\": \"BPE\"}}"] {
        assert!(Tokenize::new(options(), &file(bytes), Prompts::default()).is_err());
    }
    let mut random = reference::random();
    for name in ["wordpiece", "bpe", "unigram"] {
        let whole = reference::read(&format!("tokenize/{name}.json"));
        for length in (0..whole.len() - 1).step_by(1501) {
            assert!(Tokenize::new(options(), &file(&whole[..length]), Prompts::default()).is_err());
        }
        for _ in 0..100 {
            let mut bytes = whole.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                bytes[at] = b"0195,:{}[]\"-e\\ aZ"[random(17)];
            }
            if let Ok(step) = Tokenize::new(options(), &file(&bytes), Prompts::default()) {
                let text: String = (0..40).filter_map(|_| char::from_u32(random(0x3000) as u32)).collect();
                let _ = run(&step, vec![text.as_str().into(), "pair".into()]);
            }
        }
    }
}

#[test]
fn puts_prompts_around_texts() {
    let prompts = json!({ "query": "the ", "passage": { "prefix": "lazy ", "suffix": " dog" } });
    let built = |mut options: serde_json::Value| {
        options["tokenizer"] = json!("tokenize/wordpiece.json");
        reference::try_step("tokenize", options).map_err(|error| error.to_string())
    };
    let plain = |text: &str| run(&*built(json!({})).unwrap(), vec![text.into()]).unwrap();
    let asked = |default: Option<&str>, wanted: serde_json::Value| {
        let mut options = json!({ "prompts": prompts });
        if let Some(default) = default {
            options["prompt"] = json!(default);
        }
        let inputs = vec![Some("fox".into()), None, Some(wanted.into())];
        let outputs = built(options).unwrap().run(inputs, &mut Context::default())?;
        let numbers = |value: &Value| value.as_tensor().unwrap().as_slice::<i64>().unwrap().to_vec();
        Ok::<_, StepFailure>(outputs.iter().map(numbers).collect::<Vec<_>>())
    };
    assert_eq!(asked(None, json!({})).unwrap(), plain("fox"));
    assert_eq!(asked(Some("query"), json!({})).unwrap(), plain("the fox"));
    assert_eq!(asked(Some("query"), json!({ "prompt": "passage" })).unwrap(), plain("lazy fox dog"));
    let error = asked(None, json!({ "prompt": "other" })).unwrap_err().to_string();
    assert!(error.contains("there is no prompt `other`; there is `passage`, `query`"), "{error}");
    let error = asked(None, json!({ "promt": "query" })).unwrap_err().to_string();
    assert!(error.contains("`text_options`: unknown field `promt`"), "{error}");
    let refused = |options| built(options).err().unwrap();
    let error = refused(json!({ "prompts": prompts, "prompt": "other" }));
    assert!(error.contains("there is no prompt `other`"), "{error}");
    let error = refused(json!({ "prompts": { "a": "b".repeat(1 << 17) } }));
    assert!(error.contains("more than 65536 bytes"), "{error}");

    // As sentence-transformers saves them.
    let of_file = |file: &str| built(json!({ "prompts": file }));
    let saved = of_file("prompts/config_sentence_transformers.json").unwrap();
    assert_eq!(run(&*saved, vec!["fox".into()]).unwrap(), plain("query: fox"));
    let error = of_file("tokenize/wordpiece.cases.json").err().unwrap();
    assert!(error.contains("is no `config_sentence_transformers.json`"), "{error}");
}

#[test]
fn cuts_as_the_request_wants() {
    let step = build("wordpiece", json!({"max_length": 6})).unwrap();
    let ask = |inputs: Vec<Option<Value>>| {
        let mut context = Context::default();
        let outputs = step.run(inputs, &mut context).unwrap();
        (outputs[0].as_tensor().unwrap().as_slice::<i64>().unwrap().to_vec(), context.texts.truncated)
    };
    let text = || Some(Value::from("the fox over the fox"));
    let options = |options: serde_json::Value| Some(Value::from(options));
    let plain = |text: &str| ask(vec![Some(text.into()), None, None]).0;
    assert_eq!(ask(vec![text(), None, None]), (plain("the fox over the"), 1));
    let left = options(json!({ "truncation_side": "left" }));
    assert_eq!(ask(vec![text(), None, left]), (plain("fox over the fox"), 1));
    let short = options(json!({ "max_text_tokens": 2 }));
    assert_eq!(ask(vec![text(), None, short]), (plain("the fox"), 1));
    let pair = |text: &str, pair: &str, wanted| ask(vec![Some(text.into()), Some(pair.into()), wanted]);
    let short = options(json!({ "max_pair_tokens": 1 }));
    assert_eq!(pair("the", "fox over", short), (pair("the", "fox", None).0, 1));
}
