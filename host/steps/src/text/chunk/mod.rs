//! `chunk`: a text too long for a model → a batch of overlapping windows.

mod options;
mod token_windows;
mod with_tokenizer;

use super::tokenizer_file;
use crate::ports;
use gpux_core::{BuildError, Builtin, Group, OptionOrigin, Step};

use options::Options;
use token_windows::ChunkTokens;
use with_tokenizer::ChunkText;

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "chunk",
        summary: "Cuts long text or tokens into overlapping windows",
        group: Group::Text,
        follows: "transformers: tokenizer(…, stride=…, return_overflowing_tokens=True)",
        example: "chunk: { tokenizer: ./tokenizer.json, max_length: 384, stride: 128 }",
        schema: || schemars::schema_for!(Options),
        build,
    }
}

fn build(options: serde_json::Value, site: &OptionOrigin<'_>) -> Result<Box<dyn Step>, BuildError> {
    let options: Options = ports::options(options)?;
    options.check()?;
    Ok(match &options.tokenizer {
        Some(name) => {
            let file = tokenizer_file::find(name, site)?;
            Box::new(ChunkText::new(options, &file)?)
        }
        None => Box::new(ChunkTokens::new(options)),
    })
}
