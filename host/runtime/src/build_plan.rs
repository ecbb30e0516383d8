//! From the steps of gpux.yml to a plan.

use std::sync::Arc;

use super::ports;
use super::step_factory::{self, StepBuildError, StepFactory};
use gpux_config::{Action, Diagnostic, ForEachSpec, Overflow, Spanned, Spec, StepSpec, Wiring};
use gpux_core::{ForEach, ForEachInput, ForEachOptions, Names, Plan, PlanBuilder, Port, PortSide, Step, WiringError};

/// A step of the file with what it becomes.
struct BuiltStep<'s> {
    spec: &'s StepSpec,
    step: Built<'s>,
}

enum Built<'s> {
    Step(Arc<dyn Step>),
    /// its own step is made once the kinds of its inputs are known
    ForEach(&'s ForEachSpec, Vec<BuiltStep<'s>>),
}

/// Creates and connects the steps. Adds an error for each step that cannot be created to `diagnostics`;
/// connecting stops at the first, since later steps depend on its outputs.
pub(super) fn build_plan(
    spec: &Spec,
    mut diagnostics: Vec<Diagnostic>,
    factory: &mut StepFactory<'_>,
) -> Result<Plan, StepBuildError> {
    let steps = build(&spec.pipeline, factory, &mut diagnostics)?;
    let first = steps.first().and_then(|first| match &first.step {
        Built::Step(step) => Some(step.signature()),
        Built::ForEach(..) => None,
    });
    let inputs = match ports::inputs(spec, first) {
        Ok(inputs) => inputs,
        Err(faults) => {
            diagnostics.extend(faults);
            None
        }
    };
    if !diagnostics.is_empty() {
        return Err(diagnostics.into());
    }
    let mut builder = PlanBuilder::new(inputs);
    connect(&mut builder, steps, &mut diagnostics);
    if !diagnostics.is_empty() {
        return Err(diagnostics.into());
    }
    let names: Vec<_> = spec.outputs.iter().map(|output| output.name.clone()).collect();
    let plan = finish(builder, &names, &(0..0))?;
    let faults = check_outputs(spec, &plan);
    if faults.is_empty() { Ok(plan) } else { Err(faults.into()) }
}

/// Makes each step, and those within.
fn build<'s>(
    specs: &'s [StepSpec],
    factory: &mut StepFactory<'_>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Vec<BuiltStep<'s>>, StepBuildError> {
    let mut steps = Vec::with_capacity(specs.len());
    for spec in specs {
        let step = match &spec.action {
            Action::ForEach(for_each) => Built::ForEach(for_each, build(&for_each.steps, factory, diagnostics)?),
            _ => match factory.build(spec) {
                Some(Ok(step)) => Built::Step(step),
                Some(Err(StepBuildError::Invalid(faults))) => {
                    diagnostics.extend(faults);
                    continue;
                }
                Some(Err(machine @ StepBuildError::Environment(_))) => return Err(machine),
                None => continue,
            },
        };
        steps.push(BuiltStep { spec, step });
    }
    Ok(steps)
}

/// Connects the steps, in order.
fn connect(builder: &mut PlanBuilder, steps: Vec<BuiltStep<'_>>, diagnostics: &mut Vec<Diagnostic>) {
    for BuiltStep { spec, step } in steps {
        let (step, reads) = match step {
            Built::Step(step) => (step, spec.input.as_ref().map(step_factory::names)),
            Built::ForEach(for_each, steps) => match for_each_step(builder, spec, for_each, steps) {
                Ok(step) => (Arc::new(step) as Arc<dyn Step>, Some(bindings(for_each))),
                // What it would give is not known, so neither is what is wrong behind it.
                Err(faults) => return diagnostics.extend(faults),
            },
        };
        let gives = spec.output.as_ref().map(step_factory::names);
        let when = spec.when.as_ref().map(|when| &when.value);
        let pushed = builder.push_if(step_factory::label(spec), step, reads.as_ref(), gives.as_ref(), when);
        if let Err(error) = pushed {
            diagnostics.push(wiring_diagnostic(error, spec));
        }
    }
}

/// The values that `for-each` reads, by their names within.
fn bindings(spec: &ForEachSpec) -> Names {
    Names::ByPort(spec.inputs.iter().map(|(inner, outer)| (inner.value.clone(), outer.value.clone())).collect())
}

fn for_each_step(
    builder: &PlanBuilder,
    spec: &StepSpec,
    for_each: &ForEachSpec,
    steps: Vec<BuiltStep<'_>>,
) -> Result<ForEach, Vec<Diagnostic>> {
    let (mut inputs, mut ports) = (Vec::new(), Vec::new());
    let mut faults = Vec::new();
    for (inner, outer) in &for_each.inputs {
        let (kind, depth) = match builder.value(&outer.value) {
            Ok((kind, depth)) => (kind.clone(), depth),
            Err(error) => {
                let hint = error.hint.filter(|_| builder.has_values());
                let hint = hint.unwrap_or_else(|| "declare it under `inputs:`".to_owned());
                faults.push(
                    Diagnostic::new("wiring", outer.span.clone(), format!("for-each: {}", error.message)).hint(hint),
                );
                continue;
            }
        };
        let is_list = for_each.over.iter().any(|over| over.value == inner.value);
        let input = ForEachInput { name: inner.value.clone(), kind, is_list };
        match input.inner_kind() {
            Ok(kind) => ports.push((Port::new(&inner.value, kind), depth)),
            Err(why) => {
                let message = format!("for-each: `over` names `{}`, but {why}", inner.value);
                faults.push(Diagnostic::new("wiring", outer.span.clone(), message));
            }
        }
        inputs.push(input);
    }
    if !faults.is_empty() {
        return Err(faults);
    }

    let mut inner = PlanBuilder::within(ports);
    connect(&mut inner, steps, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let given: Vec<_> = match for_each.gives.as_slice() {
        [] => inner.last_outputs().map(|name| Spanned::new(name.to_owned(), spec.tag.span.clone())).collect(),
        names => names.to_vec(),
    };
    let conditions = for_each.keep.iter().map(|keep| Spanned::new(keep.value.value.clone(), keep.span.clone()));
    let names: Vec<_> = given.into_iter().chain(conditions).collect();
    let plan = finish(inner, &names, &spec.tag.span)?;
    let options = ForEachOptions {
        max_items: for_each.max_items,
        truncates: for_each.overflow == Overflow::Truncate,
        batch: for_each.batch,
        conditions: for_each.keep.iter().map(|keep| keep.value.clone()).collect(),
    };
    ForEach::new(plan, inputs, options).map_err(|error| {
        let span = names.get(error.output).map_or(spec.tag.span.clone(), |name| name.span.clone());
        vec![Diagnostic::new("wiring", span, format!("for-each: {}", error.message)).hint(error.hint)]
    })
}

/// The plan that gives the values of these names, or those of the last step.
fn finish(builder: PlanBuilder, names: &[Spanned<String>], at: &gpux_config::Span) -> Result<Plan, Vec<Diagnostic>> {
    let wanted: Vec<_> = names.iter().map(|name| name.value.clone()).collect();
    builder.finish((!wanted.is_empty()).then_some(wanted.as_slice())).map_err(|faults| {
        let diagnostic = |(index, error): (usize, WiringError)| {
            let span = names.get(index).map_or(at.clone(), |name| name.span.clone());
            with_hint(Diagnostic::new("output", span, error.message), error.hint)
        };
        faults.into_iter().map(diagnostic).collect()
    })
}

/// Checks the declared outputs against those of the plan.
fn check_outputs(spec: &Spec, plan: &Plan) -> Vec<Diagnostic> {
    spec.outputs
        .iter()
        .zip(plan.outputs())
        .filter_map(|(declared, output)| {
            let kind = ports::kind(declared.kind.value, declared.shape.as_ref().map(|shape| shape.value.as_slice()));
            let mismatch = kind.accepts(&output.kind).err()?;
            let because = mismatch.because.map(|because| format!(": {because}")).unwrap_or_default();
            let message =
                format!("the output `{}` is declared as {kind}, but will be {}{because}", output.name, output.kind);
            Some(Diagnostic::new("output", declared.kind.span.clone(), message))
        })
        .collect()
}

fn wiring_diagnostic(error: WiringError, step: &StepSpec) -> Diagnostic {
    let wiring = match error.at {
        PortSide::Inputs => &step.input,
        PortSide::Outputs => &step.output,
    };
    let named = wiring.as_ref().and_then(|wiring: &Wiring| wiring.values().first().map(|name| name.span.clone()));
    let span = named.unwrap_or_else(|| step.tag.span.clone());
    with_hint(Diagnostic::new("wiring", span, format!("{}: {}", step_factory::label(step), error.message)), error.hint)
}

fn with_hint(diagnostic: Diagnostic, hint: Option<String>) -> Diagnostic {
    match hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
