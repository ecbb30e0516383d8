//! Speech, by models with CTC.

use serde_json::Value as Json;

use super::fault::HubModelFault;
use super::source::ModelSource;
use super::yaml::{StepLines, quoted};
use super::{MakeError, Recipe, Sample, check_inputs, output};
use gpux_inference::ModelInfo;

const PREPROCESSOR: &str = "preprocessor_config.json";
/// Where transformers 5 writes the same.
const PROCESSOR: &str = "processor_config.json";

pub(super) fn recognition(source: &mut ModelSource<'_>, info: &ModelInfo) -> Result<Recipe, MakeError> {
    let nested = source.json(PROCESSOR)?.and_then(|mut json| Some(json.get_mut("feature_extractor")?.take()));
    let (file, features) = match (source.json(PREPROCESSOR)?, nested) {
        (None, Some(nested)) => (PROCESSOR, nested),
        (Some(features), _) => (PREPROCESSOR, features),
        (None, None) => (PREPROCESSOR, source.required_json(PREPROCESSOR, "it says what the model takes of a sound")?),
    };
    let value = |file: &str, key: &str, value: &Json, why: &str| {
        let (file, key, why) = (file.to_owned(), key.to_owned(), why.to_owned());
        HubModelFault::Value { file, key, value: value.to_string(), why }
    };
    let kind = &features["feature_extractor_type"];
    if !kind.is_null() && kind != "Wav2Vec2FeatureExtractor" {
        let why = "gpux has the features of Wav2Vec2FeatureExtractor here";
        return Err(value(file, "feature_extractor_type", kind, why).into());
    }
    let rate = features["sampling_rate"].as_u64().unwrap_or(16_000);
    let tokenizer = source.json("tokenizer_config.json")?.unwrap_or_default();
    let class = &tokenizer["tokenizer_class"];
    if !class.is_null() && class != "Wav2Vec2CTCTokenizer" {
        let why = "gpux reads the letters of Wav2Vec2CTCTokenizer here";
        return Err(value("tokenizer_config.json", "tokenizer_class", class, why).into());
    }
    check_inputs(info, &["input_values"], "a sound alone")?;
    let logits = output(info, &["logits"], "`logits`")?;
    if !source.repository.has("vocab.json") {
        let (file, why) = ("vocab.json".to_owned(), "it has the letters that the model's scores stand for".to_owned());
        return Err(HubModelFault::Missing { file, why }.into());
    }

    let mut steps = vec![
        StepLines::new("decode-audio"),
        StepLines::new("resample").sourced("to", rate, format!("{file}: sampling_rate")),
    ];
    // The class' own default is true.
    if features["do_normalize"].as_bool().unwrap_or(true) {
        steps.push(StepLines::new("standardize").from(format!("{file}: do_normalize")));
    }
    steps.push(StepLines::new("expand").option("axes", 0));
    steps.push(StepLines::new("model"));
    let vocabulary = StepLines::new("ctc-greedy-decode").option("in", quoted(logits));
    let vocabulary = vocabulary.option("vocabulary", "./vocab.json");
    steps.push(match tokenizer["do_lower_case"].as_bool() {
        Some(true) => vocabulary.sourced("lowercase", true, "tokenizer_config.json: do_lower_case"),
        _ => vocabulary,
    });
    let beside = ["tokenizer_config.json", "added_tokens.json"].into_iter();
    let beside = beside.filter(|file| source.repository.has(file));
    Ok(Recipe {
        inputs: "\ninputs: { audio: audio }\n",
        steps,
        outputs: String::new(),
        serving: "",
        labels: None,
        sample: Sample::Sound,
        companions: std::iter::once("vocab.json").chain(beside).collect(),
    })
}
