//! The report of a changed model.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::printer::{duration, size, table};
use gpux_author::{Accuracy, ModelComparison};
use gpux_core::Precision;
use gpux_inference::{ExecutionProvider, Hardware, InputSpec};

/// A changed model.
pub(super) struct Report {
    pub(super) model: String,
    pub(super) source: PathBuf,
    pub(super) place: PathBuf,
    pub(super) precision: Option<Precision>,
    pub(super) inputs: Vec<InputSpec>,
    pub(super) tools: Option<String>,
    /// of the original and the changed one
    pub(super) bytes: (u64, u64),
    pub(super) providers: (ExecutionProvider, ExecutionProvider),
    pub(super) comparison: ModelComparison,
    pub(super) over: String,
    pub(super) tolerance: f64,
    /// why nothing is written
    pub(super) refused: Option<String>,
    /// what to put into gpux.yml
    pub(super) line: Option<String>,
}

impl Report {
    /// The time of the original divided by that of the changed model.
    fn speedup(&self) -> f64 {
        let (before, after) = self.comparison.times;
        before.as_secs_f64() / after.max(Duration::from_nanos(1)).as_secs_f64()
    }

    /// The likely reason, if the changed model is slower.
    fn why_slower(&self) -> Option<&'static str> {
        let on_cpu = self.providers.1 == ExecutionProvider::Cpu;
        if self.speedup() >= 0.95 || !on_cpu {
            return None;
        }
        match self.precision? {
            Precision::Exact | Precision::Auto | Precision::Bf16 => None,
            Precision::Fp16 => Some("the CPU computes most operators in float32, and converts before and after"),
            Precision::Int8 => Some(if Hardware::detect().cpu.multiplies_bytes() {
                "what is multiplied is brought to 8 bits at each run, which takes longer than it saves here"
            } else {
                "this processor has no instructions for products of 8 bits (VNNI)"
            }),
        }
    }

    /// The size of the file as a part of the original's.
    fn size_ratio(&self) -> f64 {
        let (before, after) = self.bytes;
        after as f64 / before.max(1) as f64
    }

    /// Why the original is the better choice, if it is.
    fn advice(&self) -> Option<String> {
        let (part, speedup) = (self.size_ratio(), self.speedup());
        self.precision.filter(|_| self.refused.is_none())?;
        match (part >= 1.0, speedup) {
            (true, ..1.05) => Some(format!(
                "it is {part:.2} times as large and {speedup:.2} times as fast as the original: keep the original"
            )),
            (false, ..0.95) => Some(format!(
                "it is smaller, but {speedup:.2} times as fast as the original on this machine: use it to save memory only"
            )),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> String {
        let (before, after) = self.bytes;
        let part = self.size_ratio();
        let made = self.tools.as_ref().map(|tools| format!("\nmade with {tools}")).unwrap_or_default();
        let slower = self.why_slower().map(|why| format!(": {why}")).unwrap_or_default();
        let (one, other) = self.comparison.times;

        let row = |(name, accuracy): &(String, Accuracy)| {
            let Accuracy { statistics, top, .. } = accuracy;
            let top = top.map(|(same, all)| format!("{same} of {all}")).unwrap_or_default();
            let mut row = vec![name.clone(), statistics.compared.to_string()];
            row.extend(
                [statistics.absolute, statistics.relative, accuracy.error()].map(|number| format!("{number:.2e}")),
            );
            row.push(top);
            row.extend(statistics.mismatch.clone());
            row
        };
        let heading =
            ["output", "numbers", "largest difference", "relative", "of the largest number", "same top-1", ""];
        let outputs = table(&heading, &[1, 2, 3, 4, 5], self.comparison.outputs.iter().map(row));

        let shapes = self.inputs.iter().map(|input| {
            let shape: Vec<_> = input.shape.iter().flatten().map(ToString::to_string).collect();
            format!("{} [{}]", input.name, shape.join(", "))
        });
        let shapes = if self.precision.is_none() {
            format!("\ntakes {}", shapes.collect::<Vec<_>>().join(", "))
        } else {
            String::new()
        };

        let end = match (&self.refused, &self.line) {
            (Some(why), _) => format!("refused: {why}. Nothing is written"),
            (None, Some(line)) => {
                format!("accepted, within {} of the largest number; written. In gpux.yml:\n  {line}", self.tolerance)
            }
            (None, None) => format!("accepted, within {} of the largest number; written", self.tolerance),
        };
        let advice = self.advice().map(|advice| format!("\n{advice}")).unwrap_or_default();
        format!(
            "{}: {} of {} → {} of {} ({part:.2} of the size){made}{shapes}\n\
             a run: {} → {} ({:.2} times as fast{slower}), middle of the times on {}\n\
             over {}\n\n{outputs}\n\n{end}{advice}",
            self.model,
            self.source.display(),
            size(before),
            self.place.display(),
            size(after),
            duration(one),
            duration(other),
            self.speedup(),
            self.providers.1.name(),
            self.over,
        )
    }

    pub(super) fn to_json(&self) -> Json {
        let output = |(name, accuracy): &(String, Accuracy)| {
            json!({
                "name": name,
                "difference": accuracy.statistics,
                "largest": accuracy.largest,
                "error": accuracy.error(),
                "top1": accuracy.top.map(|(same, all)| json!({ "same": same, "rows": all })),
            })
        };
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "model": self.model,
            "source": self.source.display().to_string(),
            "written": self.refused.is_none().then(|| self.place.display().to_string()),
            "precision": self.precision,
            "inputs": self.inputs.iter().map(|input| json!({
                "name": input.name,
                "type": input.kind,
                "shape": input.shape.as_ref().map(|shape| shape.iter().map(ToString::to_string).collect::<Vec<_>>()),
            })).collect::<Vec<_>>(),
            "tools": self.tools,
            "bytes": { "before": self.bytes.0, "after": self.bytes.1 },
            "time_ms": { "before": milliseconds(self.comparison.times.0), "after": milliseconds(self.comparison.times.1) },
            "speedup": self.speedup(),
            "slower": self.why_slower(),
            "advice": self.advice(),
            "provider": { "before": self.providers.0.name(), "after": self.providers.1.name() },
            "over": self.over,
            "outputs": self.comparison.outputs.iter().map(output).collect::<Vec<_>>(),
            "tolerance": self.tolerance,
            "accepted": self.refused.is_none(),
            "refused": self.refused,
            "gpux_yml": self.line,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advises_against_larger_and_slower_models() {
        let report = |bytes, times: (u64, u64)| {
            let times = (Duration::from_micros(times.0), Duration::from_micros(times.1));
            Report {
                model: "model".to_owned(),
                source: PathBuf::from("m.onnx"),
                place: PathBuf::from("m.int8.onnx"),
                precision: Some(Precision::Int8),
                inputs: Vec::new(),
                tools: None,
                bytes,
                providers: (ExecutionProvider::Cpu, ExecutionProvider::Cpu),
                comparison: ModelComparison { outputs: Vec::new(), times },
                over: "8 inputs".to_owned(),
                tolerance: 0.05,
                refused: None,
                line: None,
            }
        };
        let larger = report((1300, 2028), (10, 12));
        let told = larger.text();
        assert!(
            told.ends_with("it is 1.56 times as large and 0.83 times as fast as the original: keep the original"),
            "{told}"
        );
        assert_eq!(larger.to_json()["advice"], larger.advice().unwrap_or_default());
        let slower = report((1300, 400), (10, 12)).advice();
        assert!(slower.is_some_and(|advice| advice.contains("to save memory only")));
        assert_eq!(report((1300, 400), (10, 10)).advice(), None);
        assert_eq!(report((1300, 2028), (20, 10)).advice(), None, "faster, at a price");
        let refused = Report { refused: Some("too far off".to_owned()), ..larger };
        assert_eq!(refused.advice(), None);
    }
}
