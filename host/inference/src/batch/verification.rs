//! Verifies by trial that batching does not change results. It does where the first axis is no batch
//! axis, or rows depend on each other.

use smallvec::smallvec;

use super::super::sessions::{ModelInputs, SessionSet};
use super::super::tensor_comparison::all_close;
use super::rules::BatchRules;
use super::shape_ladder::ShapeLadder;
use gpux_core::{Dim, ElementType, Kind, Signature, Tensor};

/// Open dimensions are tried with these sizes, until the model runs.
const SIZES: [usize; 4] = [8, 32, 224, 1];
/// The lengths of two texts that fall into one bucket.
const LENGTHS: [usize; 2] = [5, 8];
/// Results may differ by this, relative to the largest number of an output: kernels for other sizes
/// add in another order.
const TOLERANCE: f64 = 1e-3;

/// The values and sizes of synthetic requests.
struct SampleSpec {
    /// whole numbers are below this
    integer_bound: u64,
    /// fractions lie between these
    low: f64,
    high: f64,
    /// rows of each request
    rows: &'static [usize],
}

/// Rows that depend on each other may do so for some values and sizes only. The first is what most
/// models take; where a model takes no numbers as large as a later one's, that is passed over.
const SAMPLE_SPECS: [SampleSpec; 4] = [
    SampleSpec { integer_bound: 2, low: 0.0, high: 1.0, rows: &[1, 1] },
    SampleSpec { integer_bound: 2, low: -1.0, high: 1.0, rows: &[1, 2, 1, 1] },
    SampleSpec { integer_bound: 16, low: -4.0, high: 4.0, rows: &[1, 1, 1] },
    SampleSpec { integer_bound: 256, low: 0.0, high: 255.0, rows: &[2, 1, 1] },
];

/// The rules that hold for the model, and the size of its open dimensions that it was tried with. Fails with the reason why none do.
pub(super) fn verify(
    sessions: &SessionSet,
    signature: &Signature,
    rules: BatchRules,
    shapes: &ShapeLadder,
) -> Result<(BatchRules, usize), String> {
    if rules.pads() && verify_with_lengths(sessions, signature, &rules, shapes, LENGTHS).is_ok() {
        return Ok((rules, LENGTHS[1]));
    }
    let rules = BatchRules::unpadded();
    verify_with_lengths(sessions, signature, &rules, shapes, [LENGTHS[1]; 2]).map(|size| (rules, size))
}

/// Compares synthetic requests with these text lengths, individual and batched.
fn verify_with_lengths(
    sessions: &SessionSet,
    signature: &Signature,
    rules: &BatchRules,
    shapes: &ShapeLadder,
    lengths: [usize; 2],
) -> Result<usize, String> {
    let mut last = "its inputs are too large to try".to_owned();
    for size in SIZES {
        let made = |spec: usize| -> Option<Vec<ModelInputs>> {
            let request = |(number, rows): (usize, &usize)| {
                let size = if rules.pads() { lengths[number % lengths.len()] } else { size };
                sample_request(signature, &SAMPLE_SPECS[spec], size, *rows, spec * 16 + number)
            };
            SAMPLE_SPECS[spec].rows.iter().enumerate().map(request).collect()
        };
        let Some(requests) = made(0) else { continue };
        match difference(sessions, rules, shapes, &requests.iter().collect::<Vec<_>>()) {
            // It does not run on these inputs: try others.
            Err(failure) => last = format!("it cannot be tried: {failure}"),
            Ok(Some(difference)) => return Err(difference),
            Ok(None) => {
                for requests in (1..SAMPLE_SPECS.len()).filter_map(made) {
                    let requests: Vec<_> = requests.iter().collect();
                    if let Ok(Some(difference)) = difference(sessions, rules, shapes, &requests) {
                        return Err(difference);
                    }
                }
                return Ok(size);
            }
        }
    }
    Err(last)
}

/// Runs every shape in as many sessions at once as there are, so that a provider that compiles for each shape has
/// compiled it. Open dimensions without a list have this `size`.
pub(super) fn warm_up(
    sessions: &SessionSet,
    signature: &Signature,
    shapes: &ShapeLadder,
    size: usize,
) -> Result<(), String> {
    for (rows, length) in shapes.shapes(size) {
        let request = sample_request(signature, &SAMPLE_SPECS[0], length, rows, 0);
        let request = request.ok_or_else(|| format!("{rows} rows of size {length} are too large to try"))?;
        let run = || sessions.run(request.clone(), None).map(drop);
        let results: Vec<_> = std::thread::scope(|scope| {
            let others =
                (1..sessions.instances()).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok());
            let others: Vec<_> = others.collect();
            let own = run();
            others.into_iter().filter_map(|other| other.join().ok()).chain([own]).collect()
        });
        let failed = |error| format!("{rows} rows of length {length} do not run: {error}");
        results.into_iter().collect::<Result<(), _>>().map_err(failed)?;
    }
    Ok(())
}

/// The first difference between batched and individual runs. An error is a request that fails alone.
pub(super) fn difference(
    sessions: &SessionSet,
    rules: &BatchRules,
    shapes: &ShapeLadder,
    requests: &[&ModelInputs],
) -> Result<Option<String>, String> {
    let run = |inputs: ModelInputs| sessions.run(inputs, None).map_err(|failure| failure.to_string());
    let alone = requests.iter().map(|request| run((*request).clone())).collect::<Result<Vec<_>, _>>()?;
    let mut joined = rules.join(requests, shapes).map_err(|error| error.to_string())?;
    // Alone they run, so from here on a failure is an answer.
    let outputs = match run(std::mem::take(&mut joined.inputs)) {
        Ok(outputs) => outputs,
        Err(failure) => return Ok(Some(format!("{} requests together fail: {failure}", requests.len()))),
    };
    let parts = match joined.split(rules, &outputs) {
        Ok(parts) => parts,
        Err(reason) => return Ok(Some(reason)),
    };
    for (alone, difference) in alone.iter().zip(&parts) {
        for (index, (alone, difference)) in alone.iter().zip(difference).enumerate() {
            if !all_close(alone, difference, TOLERANCE) {
                return Ok(Some(format!("output {index} of a request changes with what runs beside it")));
            }
        }
    }
    Ok(None)
}

/// A request of `rows` rows; `number` is its seed.
fn sample_request(
    signature: &Signature,
    spec: &SampleSpec,
    size: usize,
    rows: usize,
    number: usize,
) -> Option<ModelInputs> {
    let mut inputs: ModelInputs = smallvec![];
    for (index, port) in signature.inputs.iter().enumerate().filter(|(_, port)| !port.optional) {
        let Kind::Tensor(kind) = &port.kind else { return None };
        let dim = |(axis, dim): (usize, &Dim)| match (axis, dim) {
            (0, _) => rows,
            (_, Dim::Fixed(fixed)) => *fixed,
            _ => size,
        };
        let shape: Vec<_> = kind.shape.as_ref()?.iter().enumerate().map(dim).collect();
        let count = gpux_core::element_count(&shape).filter(|count| *count <= 1 << 24)?;
        inputs.push((index, sample_tensor(&port.name, kind.element()?, shape, count, spec, number)?));
    }
    Some(inputs)
}

/// Numbers in no order, and ones for a mask. Every second request is nearly all zeros: unlike its
/// neighbours.
fn sample_tensor(
    name: &str,
    element: ElementType,
    shape: Vec<usize>,
    count: usize,
    spec: &SampleSpec,
    number: usize,
) -> Option<Tensor> {
    if element == ElementType::String {
        return Tensor::new(shape, vec![["a", "b"][number % 2].to_owned(); count]).ok();
    }
    let value = |at: usize| {
        let mixed = splitmix64(at as u64 ^ (number as u64) << 40);
        let part = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        match element {
            _ if name.contains("mask") => 1.0,
            _ if number % 2 == 1 && !mixed.is_multiple_of(8) => 0.0,
            element if element.is_float() => spec.low + part * (spec.high - spec.low),
            _ => (part * spec.integer_bound as f64).floor(),
        }
    };
    Tensor::new(shape, (0..count).map(value).collect::<Vec<f64>>()).ok()?.cast(element).ok()
}

/// SplitMix64: every bit of the number has an effect on every bit of the result.
fn splitmix64(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}
