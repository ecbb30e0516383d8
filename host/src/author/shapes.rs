//! The shapes that models meet in practice: those of a pipeline's first golden case that runs.

use std::path::Path;
use std::time::Duration;

use super::case::{Case, input_values};
use super::test::{CASES_FOLDER, cases_in};
use crate::assemble::Pipeline;
use crate::inference::Shapes;
use crate::pipeline::{Context, Observer, PlannedStep, RunOptions, Value, deadline_after};

/// The shapes of what each model of the pipeline is given, by its name; nothing for a pipeline
/// without cases. A model that runs several times counts with its first.
pub fn shapes(pipeline: &Pipeline) -> Vec<(String, Shapes)> {
    let folder = pipeline.path().parent().unwrap_or(Path::new("."));
    let cases = cases_in(&folder.join(CASES_FOLDER)).unwrap_or_default();
    let of_case = |case: &std::path::PathBuf| {
        let case = Case::load(case).ok()?;
        case.of_a_pipeline().ok()?;
        let ports: Vec<_> = pipeline.plan().inputs().iter().map(|input| input.port.clone()).collect();
        let inputs = input_values(&case, &ports).ok()?;
        let mut seen = Seen { pipeline, shapes: Vec::new() };
        let options = RunOptions {
            deadline: deadline_after(pipeline.timeout()),
            observer: Some(&mut seen),
            ..RunOptions::default()
        };
        // A case may expect an error: then another tells more.
        pipeline.plan().run(inputs, options).ok()?;
        Some(seen.shapes)
    };
    cases.iter().find_map(of_case).unwrap_or_default()
}

struct Seen<'a> {
    pipeline: &'a Pipeline,
    shapes: Vec<(String, Shapes)>,
}

impl Observer for Seen<'_> {
    fn before(&mut self, step: &PlannedStep, inputs: &[Option<Value>]) {
        let Some((name, model)) = self.pipeline.model_of(step) else { return };
        if !self.shapes.iter().any(|(seen, _)| seen == name) {
            self.shapes.push((name.to_owned(), model.shapes(inputs)));
        }
    }

    fn after(&mut self, _: &PlannedStep, _: Duration, _: &[Value], _: &Context) {}
}
