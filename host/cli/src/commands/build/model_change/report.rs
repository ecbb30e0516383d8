//! The report of a changed model.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::printer::{duration, size, table};
use gpux_author::{Accuracy, ModelComparison};
use gpux_inference::{ExecutionProvider, Hardware, InputSpec, Precision};

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
            Precision::Fp16 => Some("the CPU computes most operators in float32, and converts before and after"),
            Precision::Int8 => Some(if Hardware::detect().cpu.multiplies_bytes() {
                "what is multiplied is brought to 8 bits at each run, which takes longer than it saves here"
            } else {
                "this processor has no instructions for products of 8 bits (VNNI)"
            }),
        }
    }

    pub(super) fn text(&self) -> String {
        let (before, after) = self.bytes;
        let part = after as f64 / before.max(1) as f64;
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
        format!(
            "{}: {} of {} → {} of {} ({part:.2} of the size){made}{shapes}\n\
             a run: {} → {} ({:.2} times as fast{slower}), middle of the times on {}\n\
             over {}\n\n{outputs}\n\n{end}",
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
