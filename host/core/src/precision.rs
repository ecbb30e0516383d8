//! What float32 models are computed in.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What float32 models are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// as the model says: float32 stays float32 on every provider
    #[default]
    Exact,
    /// what was measured to be the fastest of those whose results stay close to `exact`
    Auto,
    /// bfloat16, where the provider and the machine have it
    Bf16,
    /// float16: the model `NAME.fp16.onnx` beside the model, else where the provider has it
    Fp16,
    /// integers of 8 bits: the model `NAME.int8.onnx` beside the model
    Int8,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Exact, Self::Auto, Self::Bf16, Self::Fp16, Self::Int8];

    /// Its name in gpux.yml, on the command line and in the names of files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Auto => "auto",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
        }
    }

    /// Whether `gpux build` converts models to it.
    pub const fn is_converted(self) -> bool {
        matches!(self, Self::Fp16 | Self::Int8)
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|precision| precision.name() == text).ok_or_else(|| format!("one of {}", names()))
    }
}
