//! The step `greedy-decoder`: writes on, token by token, with a model of the pipeline.
//!
//! The model takes `tokens`, int64 of batch × length, and gives scores of every token to come next:
//! float32 of batch × vocabulary, or batch × length × vocabulary, of which the last row counts. The
//! best-scored token is appended, and the model asked again, until it gives the end. What else the
//! model takes, such as an encoder's `encoder_hidden_states`, is an input of this step, and the same
//! at each token.

#![forbid(unsafe_code)]

use gpux_step::{Dim, Error, Lent, Port, Signature, Step, Tensor, Values, log, models};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// the model, which `grant: { models: [NAME] }` must list
    #[serde(default = "model")]
    model: String,
    /// the model's input of tokens
    #[serde(default = "tokens")]
    tokens: String,
    /// further inputs of the model: inputs of this step, given to the model at each token
    #[serde(default)]
    also: Vec<String>,
    /// the tokens that every text begins with; where it is given, there is no input `input_ids`
    #[serde(default)]
    begin: Vec<i64>,
    /// the token after which nothing comes
    end: Option<i64>,
    /// most tokens that are appended
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1, max = 65_536))]
    max_tokens: u32,
    /// what each token stands for; where it is given, there is an output `text`
    #[serde(default)]
    vocabulary: Vec<String>,
}

fn model() -> String {
    "model".into()
}

fn tokens() -> String {
    "tokens".into()
}

fn max_tokens() -> u32 {
    256
}

/// The input with the tokens to begin with.
const BEGINNING: &str = "input_ids";

struct GreedyDecoder {
    options: Options,
}

impl Step for GreedyDecoder {
    type Options = Options;
    const SUMMARY: &str = "writes on, token by token, with a model of the pipeline";
    const OPTIONS_SCHEMA: Option<&str> = Some(include_str!("../options.schema.json"));

    fn configure(options: Options) -> Result<(Self, Signature), Error> {
        let tokens = |name: &str| Port::tensor::<i64>(name).shape([1.into(), Dim::Any]);
        if let Some(twice) = twice(&options) {
            return Err(Error::invalid(format!("the model cannot have two inputs `{twice}`")));
        }
        let mut signature =
            Signature::new().output(tokens("tokens").about("the beginning and what was written on, without the end"));
        if options.begin.is_empty() {
            if options.also.iter().any(|name| name == BEGINNING) {
                return Err(Error::invalid(format!("`{BEGINNING}` is the beginning, and cannot be in `also`")));
            }
            signature = signature.input(tokens(BEGINNING).about("the beginning, one text"));
        }
        for name in &options.also {
            signature = signature.input(Port::tensor_of(name, []).about("for the model, at each token"));
        }
        if !options.vocabulary.is_empty() {
            signature = signature.output(Port::text("text").about("the same in words"));
        }
        models::require(&options.model)?;
        Ok((Self { options }, signature))
    }

    fn process(&self, inputs: Values) -> Result<Values, Error> {
        let mut tokens = match &self.options.begin {
            begin if begin.is_empty() => inputs.tensor(BEGINNING)?.view::<i64>()?.to_vec(),
            begin => begin.clone(),
        };
        if tokens.is_empty() {
            return Err(Error::invalid("there is no token to begin with"));
        }
        let begun = tokens.len();
        let ended = loop {
            let next = self.next(&tokens, &inputs)?;
            if Some(next) == self.options.end {
                break true;
            }
            tokens.push(next);
            if tokens.len() - begun == self.options.max_tokens as usize {
                break false;
            }
        };
        log::debug!("{} tokens, {}", tokens.len() - begun, if ended { "to the end" } else { "not ended" });
        let mut results = Values::new().with("tokens", Tensor::of([1, tokens.len() as u32], &tokens)?);
        if !self.options.vocabulary.is_empty() {
            results = results.with("text", self.text(&tokens)?);
        }
        Ok(results)
    }
}

/// The first input of the model that is named twice.
fn twice(options: &Options) -> Option<&str> {
    let names = || options.also.iter().chain([&options.tokens]);
    names().enumerate().find(|(place, name)| names().take(*place).any(|other| other == *name)).map(|(_, name)| &**name)
}

impl GreedyDecoder {
    /// The token that the model finds most likely after `tokens`; the first of equals.
    fn next(&self, tokens: &[i64], inputs: &Values) -> Result<i64, Error> {
        let model = &self.options.model;
        let tokens = Tensor::of([1, tokens.len() as u32], tokens)?;
        let mut arguments = vec![(self.options.tokens.as_str(), Lent::from(&tokens))];
        for name in &self.options.also {
            arguments.push((name, Lent::from(inputs.tensor(name)?)));
        }
        let scores = models::run(model, arguments)?.take_first_tensor()?;
        let vocabulary = scores.shape().last().copied().unwrap_or(0) as usize;
        let Some(last_row) = scores.len().checked_sub(vocabulary) else {
            return Err(Error::Failed(format!("the model `{model}` gave no scores")));
        };
        let scores = scores.read::<f32>(last_row, vocabulary)?;
        let mut best = None;
        for (token, score) in scores.iter().enumerate() {
            if !score.is_nan() && best.is_none_or(|(_, highest)| *score > highest) {
                best = Some((token, *score));
            }
        }
        match best {
            Some((token, _)) => Ok(token as i64),
            None => Err(Error::Failed(format!("the model `{model}` gave no scores that are numbers"))),
        }
    }

    fn text(&self, tokens: &[i64]) -> Result<String, Error> {
        let vocabulary = &self.options.vocabulary;
        let word = |token: &i64| usize::try_from(*token).ok().and_then(|token| vocabulary.get(token));
        let unknown = |token: &i64| Error::InvalidInput(format!("the vocabulary has no token {token}"));
        tokens.iter().map(|token| word(token).map(String::as_str).ok_or_else(|| unknown(token))).collect()
    }
}

gpux_step::export!(GreedyDecoder);

#[cfg(test)]
mod tests {
    use gpux_step::testing;

    use super::*;

    const OPTIONS: &str = r#"{"end": 0, "max_tokens": 5, "vocabulary": ["", "a", "b", "c", "d"]}"#;

    /// A model that counts up, and from 4 to the end; it scores every place, as many models do.
    fn count_up() {
        testing::model("model", |inputs| {
            let tokens = inputs.tensor("tokens")?.view::<i64>()?.to_vec();
            let mut scores = vec![0.5_f32; tokens.len() * 5];
            for (place, token) in tokens.iter().enumerate() {
                scores[place * 5 + (*token as usize + 1) % 5] = 2.0;
            }
            Ok(Values::from([("scores", Tensor::of([1, tokens.len() as u32, 5], &scores)?)]))
        });
    }

    fn run(options: &str, tokens: &[i64]) -> Result<Values, Error> {
        testing::run::<GreedyDecoder>(options, [("input_ids", Tensor::of([1, tokens.len() as u32], tokens)?)])
    }

    #[test]
    fn it_writes_on_to_the_end() {
        count_up();
        let results = run(OPTIONS, &[2]).unwrap();
        assert_eq!(results.tensor("tokens").unwrap().view::<i64>().unwrap().to_vec(), [2, 3, 4]);
        assert_eq!(results.text("text").unwrap(), "bcd");
        assert_eq!(testing::logged().len(), 1);
    }

    #[test]
    fn it_stops_where_it_must() {
        count_up();
        let results = run(r#"{"max_tokens": 7}"#, &[3]).unwrap();
        assert_eq!(results.tensor("tokens").unwrap().view::<i64>().unwrap().to_vec(), [3, 4, 0, 1, 2, 3, 4, 0]);
        assert_eq!(results.len(), 1);
    }

    /// As decoders that attend to what an encoder gave are exported.
    const ATTENDING: &str =
        r#"{"tokens": "input_ids", "also": ["encoder_hidden_states", "bias"], "begin": [7, 1], "end": 0}"#;

    #[test]
    fn the_model_gets_what_else_it_takes_at_each_token() {
        testing::model("model", |inputs| {
            let names: Vec<&str> = inputs.iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["input_ids", "encoder_hidden_states", "bias"]);
            let heard = inputs.tensor("encoder_hidden_states")?.view::<f32>()?.to_vec();
            let next = heard.get(inputs.tensor("input_ids")?.len() - 2).copied().unwrap_or(0.0) as usize;
            let mut scores = [0.5_f32; 8];
            scores[next] = 2.0;
            Ok(Values::from([("logits", Tensor::of([1, 8], &scores)?)]))
        });
        let heard = Tensor::of([1, 3, 1], &[4.0_f32, 2.0, 5.0]).unwrap();
        let bias = Tensor::of([1], &[false]).unwrap();
        let inputs = [("encoder_hidden_states", heard), ("bias", bias)];
        let results = testing::run::<GreedyDecoder>(ATTENDING, inputs).unwrap();
        assert_eq!(results.tensor("tokens").unwrap().view::<i64>().unwrap().to_vec(), [7, 1, 4, 2, 5]);
    }

    #[test]
    fn names_that_clash_are_refused() {
        let message = |options| testing::configure::<GreedyDecoder>(options).err().unwrap().message().to_owned();
        assert_eq!(message(r#"{"also": ["a", "b", "a"]}"#), "the model cannot have two inputs `a`");
        assert_eq!(message(r#"{"also": ["tokens"]}"#), "the model cannot have two inputs `tokens`");
        assert!(message(r#"{"also": ["input_ids"]}"#).starts_with("`input_ids` is the beginning"));
    }

    #[test]
    fn what_goes_wrong_is_said() {
        let message = |options: &str, tokens: &[i64]| run(options, tokens).unwrap_err();
        assert!(message(OPTIONS, &[1]).message().contains("`model` is not granted"));
        testing::model("model", |_| Ok(Values::from([("scores", Tensor::of([1, 2], &[f32::NAN; 2])?)])));
        assert_eq!(message(OPTIONS, &[]), Error::invalid("there is no token to begin with"));
        assert_eq!(message(OPTIONS, &[1]), Error::failed("the model `model` gave no scores that are numbers"));
        testing::model("model", |_| {
            Ok(Values::from([("scores", Tensor::of([1, 9], &[0_f32, 0., 0., 0., 0., 0., 1., 0., 0.])?)]))
        });
        assert_eq!(message(OPTIONS, &[1]), Error::invalid("the vocabulary has no token 6"));
    }

    #[test]
    fn the_schema_is_that_of_the_options() {
        testing::check_schema::<GreedyDecoder>("options.schema.json");
    }
}
