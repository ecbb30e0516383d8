//! Whether a model's requests may really share runs: tried, not believed. A model whose first axis
//! is no batch, or whose rows look at each other, gives other results for rows that run together.

use smallvec::smallvec;

use super::super::alike::alike;
use super::super::sessions::{ModelInputs, SessionSet};
use super::rules::Rules;
use crate::pipeline::{Dim, ElementType, Kind, Signature, Tensor};

/// Open dimensions are tried with these sizes, until the model runs.
const SIZES: [usize; 4] = [8, 32, 224, 1];
/// The lengths of two texts that fall into one bucket.
const LENGTHS: [usize; 2] = [5, 8];
/// Results may differ by this, relative to the largest number of an output: kernels for other sizes
/// add in another order.
const TOLERANCE: f64 = 1e-3;

/// The rules that hold for the model. Fails with the reason why none do.
pub(super) fn prove(sessions: &SessionSet, signature: &Signature, rules: Rules) -> Result<Rules, String> {
    if rules.pads() && try_sizes(sessions, signature, &rules, LENGTHS).is_ok() {
        return Ok(rules);
    }
    let rules = Rules::unpadded();
    try_sizes(sessions, signature, &rules, [LENGTHS[1]; 2]).map(|()| rules)
}

/// Two made-up requests with these text lengths, alone and together.
fn try_sizes(sessions: &SessionSet, signature: &Signature, rules: &Rules, lengths: [usize; 2]) -> Result<(), String> {
    let mut last = "its inputs are too large to try".to_owned();
    for size in SIZES {
        let made = |number: usize| {
            let size = if rules.pads() { lengths[number] } else { size };
            inputs(signature, size, number)
        };
        let Some(requests) = made(0).zip(made(1)) else { continue };
        match together(sessions, rules, [&requests.0, &requests.1]) {
            Ok(None) => return Ok(()),
            Ok(Some(difference)) => return Err(difference),
            // It does not run at all on such inputs: others may do.
            Err(failure) => last = format!("it cannot be tried: {failure}"),
        }
    }
    Err(last)
}

/// What is different when they run together, if anything. An error is a run that failed.
fn together(sessions: &SessionSet, rules: &Rules, requests: [&ModelInputs; 2]) -> Result<Option<String>, String> {
    let run = |inputs: ModelInputs| sessions.run(inputs, None).map_err(|failure| failure.to_string());
    let alone = [run(requests[0].clone())?, run(requests[1].clone())?];
    let mut joined = rules.join(&requests).map_err(|error| error.to_string())?;
    // Alone they run, so from here on a failure is an answer.
    let outputs = match run(std::mem::take(&mut joined.inputs)) {
        Ok(outputs) => outputs,
        Err(failure) => return Ok(Some(format!("two requests together fail: {failure}"))),
    };
    let parts = match joined.split(rules, &outputs) {
        Ok(parts) => parts,
        Err(reason) => return Ok(Some(reason)),
    };
    for (alone, together) in alone.iter().zip(&parts) {
        for (index, (alone, together)) in alone.iter().zip(together).enumerate() {
            if !alike(alone, together, TOLERANCE) {
                return Ok(Some(format!("output {index} of a request changes with what runs beside it")));
            }
        }
    }
    Ok(None)
}

/// A request of one row. `number` tells two requests apart.
fn inputs(signature: &Signature, size: usize, number: usize) -> Option<ModelInputs> {
    let mut inputs: ModelInputs = smallvec![];
    for (index, port) in signature.inputs.iter().enumerate().filter(|(_, port)| !port.optional) {
        let Kind::Tensor(kind) = &port.kind else { return None };
        let dim = |(axis, dim): (usize, &Dim)| match (axis, dim) {
            (0, _) => 1,
            (_, Dim::Fixed(fixed)) => *fixed,
            _ => size,
        };
        let shape: Vec<_> = kind.shape.as_ref()?.iter().enumerate().map(dim).collect();
        let count = crate::pipeline::element_count(&shape).filter(|count| *count <= 1 << 24)?;
        inputs.push((index, filled(&port.name, kind.element()?, shape, count, number)?));
    }
    Some(inputs)
}

/// Numbers that most models take: small ones, and ones for a mask.
fn filled(name: &str, element: ElementType, shape: Vec<usize>, count: usize, number: usize) -> Option<Tensor> {
    if element == ElementType::String {
        return Tensor::new(shape, vec![["a", "b"][number].to_owned(); count]).ok();
    }
    let value = |at: usize| match element {
        _ if name.contains("mask") => 1.0,
        element if element.is_float() => (at * 37 % 101) as f64 / 101.0 - 0.5 * number as f64,
        _ => ((at + number) % 2) as f64,
    };
    Tensor::new(shape, (0..count).map(value).collect::<Vec<f64>>()).ok()?.cast(element).ok()
}
