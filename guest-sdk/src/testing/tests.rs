use crate::{Dim, Error, Layout, NoOptions, Port, Signature, Step, Tensor, Value, Values, log, testing};

/// Gives what the test left in its inputs under `gives`.
struct Given;

impl Step for Given {
    type Options = NoOptions;
    const SUMMARY: &str = "gives back";
    const OPTIONS_SCHEMA: Option<&str> = Some(NoOptions::SCHEMA);

    fn configure(_: NoOptions) -> Result<(Self, Signature), Error> {
        let square = || Port::tensor::<f32>("x").shape([Dim::named("side"), Dim::named("side")]).layout(Layout::Hwc);
        let signature = Signature::new()
            .input(square())
            .input(Port::text("gives").optional())
            .output(square())
            .output(Port::json("seen"));
        Ok((Self, signature))
    }

    fn process(&self, mut inputs: Values) -> Result<Values, Error> {
        let gives = inputs.take("gives");
        let x = inputs.take_tensor("x")?;
        match gives {
            Some(Value::Text(gives)) if gives == "too little" => Ok(Values::from([("x", x)])),
            Some(Value::Text(gives)) if gives == "twice" => {
                let again = Tensor::of([1, 1], &[1.0_f32])?;
                Values::from([("x", x), ("x", again)]).with_json("seen", &1)
            }
            Some(Value::Text(gives)) if gives == "a text" => Values::from([("x", "x")]).with_json("seen", &1),
            Some(Value::Text(gives)) if gives == "no JSON" => {
                Ok(Values::from([("x", x)]).with("seen", Value::Json("{".into())))
            }
            _ => Values::from([("x", x)]).with_json("seen", &[inputs.len()]),
        }
    }
}

fn run(inputs: impl Into<Values>) -> Result<Values, Error> {
    testing::run::<Given>("{}", inputs)
}

fn square(side: u32) -> Tensor {
    Tensor::zeros::<f32>([side, side]).unwrap()
}

#[test]
fn what_fits_goes_through() {
    let results = run([("x", square(2))]).unwrap();
    assert_eq!(results.tensor("x").unwrap().shape(), [2, 2]);
    assert_eq!(results.json::<Vec<u32>>("seen").unwrap(), [0]);
    assert_eq!(results.json::<u32>("seen").unwrap_err().message(), "`seen` does not fit: an array, not u32");
}

#[test]
fn inputs_must_be_what_the_signature_says() {
    let refused = |inputs: Values| match run(inputs).unwrap_err() {
        Error::InvalidInput(why) => why,
        Error::Failed(why) => panic!("{why}"),
    };
    assert_eq!(refused(Values::new()), "the input `x` is missing");
    assert_eq!(refused(Values::from([("x", square(1)), ("y", square(1))])), "there is no input `y`");
    assert!(refused(Values::from([("x", "text")])).starts_with("input `x` is Text, not Tensor"));
    let input = |tensor: Tensor| refused(Values::from([("x", tensor)]));
    let of_bytes = Tensor::zeros::<u8>([1, 1]).unwrap();
    assert_eq!(input(of_bytes), "input `x`: the element type is uint8, not [Float32]");
    assert_eq!(input(Tensor::zeros::<f32>([1]).unwrap()), "input `x`: it has 1 axes, not 2");
    assert_eq!(input(Tensor::zeros::<f32>([1, 2]).unwrap()), "input `x`: axis 1 is 2, not 1");
    let mut planes = square(1);
    planes.set_layout(Some(Layout::Chw));
    assert_eq!(input(planes), "input `x`: the layout is Chw, not Hwc");
}

#[test]
fn results_must_be_what_the_signature_says() {
    let failed = |gives: &str| match run(Values::from([("x", square(1))]).with("gives", gives)).unwrap_err() {
        Error::Failed(why) => why,
        Error::InvalidInput(why) => panic!("{why}"),
    };
    assert_eq!(failed("too little"), "it gave its output `seen` 0 times, not once");
    assert_eq!(failed("twice"), "it gave its output `x` 2 times, not once");
    assert!(failed("a text").starts_with("output `x` is Text, not Tensor"));
    assert!(failed("no JSON").starts_with("output `seen` is no JSON"));
}

#[test]
fn lines_are_kept_and_taken() {
    log::debug!("plain");
    log::error!("{} {}", 1, "two");
    let lines = testing::logged();
    assert_eq!(lines, [(log::Level::Debug, "plain".to_owned()), (log::Level::Error, "1 two".to_owned())]);
    assert!(testing::logged().is_empty());
}

#[test]
fn a_schema_is_the_text_or_derived() {
    assert_eq!(testing::schema::<Given>(), NoOptions::SCHEMA);
    let derived: serde_json::Value = serde_json::from_str(&crate::options::derived::<NoOptions>()).unwrap();
    assert_eq!((&derived["type"], &derived["additionalProperties"]), (&"object".into(), &false.into()));
}

#[test]
#[should_panic(expected = "is not the schema of the options any more")]
fn an_outdated_schema_fails_its_test() {
    testing::check_schema::<Given>("Cargo.toml");
}

#[test]
fn tensors_refuse_what_gpux_refuses() {
    let message = |result: Result<Tensor, Error>| result.unwrap_err().message().to_owned();
    assert_eq!(message(Tensor::of([3], &[1_u16, 2])), "uint16[3] takes 6 bytes, not 4");
    assert!(message(Tensor::zeros::<u8>([u32::MAX; 4])).contains("too large"));
    let boolean = Tensor::from_bytes(crate::ElementType::Boolean, [1], &[2]);
    assert_eq!(message(boolean), "a boolean is neither 0 nor 1");
    let texts = Tensor::of_texts([2], &["a".to_owned(), "b".to_owned()]).unwrap();
    assert_eq!(texts.texts().unwrap(), ["a", "b"]);
    assert!(texts.bytes().is_err() && texts.view::<u8>().is_err());
    let mut flags = Tensor::of([3], &[true, false, true]).unwrap();
    flags.write(1, &[true]).unwrap();
    assert_eq!(flags.view::<bool>().unwrap().to_vec(), [true; 3]);
    assert_eq!(flags.write(2, &[true; 2]).unwrap_err().message(), "bytes 2 to 4 leave a tensor of 3 bytes");
    let mut read = [false; 2];
    flags.read_into(1, &mut read).unwrap();
    assert_eq!(read, [true; 2]);
    assert!(flags.read::<bool>(usize::MAX, 2).is_err());
}

#[cfg(feature = "half")]
#[test]
fn half_floats_are_elements() {
    let numbers = [half::f16::from_f32(1.5), half::f16::from_f32(-2.0)];
    let tensor = Tensor::of([2], &numbers).unwrap();
    assert_eq!(tensor.element(), crate::ElementType::Float16);
    assert_eq!(tensor.view::<half::f16>().unwrap().to_vec(), numbers);
    assert!(tensor.view::<half::bf16>().is_err());
}
