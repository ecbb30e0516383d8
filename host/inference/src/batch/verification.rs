//! Verifies by trial that requests which share a run have the same results as alone, bit for bit. They have not where
//! the first axis is no batch axis, where rows depend on each other, and where kernels for other sizes round
//! otherwise.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::providers::ExecutionProvider;
use super::super::sessions::{ModelInputs, SessionSet, TrialSessions};
use super::super::tensor_comparison::TensorDifference;
use super::BatchOptions;
use super::operator_search::first_different_operator;
use super::rules::BatchRules;
use super::sample_requests::{SampleRequests, ValueRange};
use super::shape_ladder::ShapeLadder;
use gpux_core::{Signature, Tensor};

/// Open dimensions are tried with these sizes, until the model runs.
const SIZES: [usize; 4] = [8, 32, 224, 1];
/// Further sizes, as texts and pictures have them.
const MORE_SIZES: [usize; 4] = [17, 48, 1, 128];
/// The lengths of texts that are padded to the longest of them.
const PADDED_LENGTHS: [[usize; 2]; 5] = [[5, 8], [1, 17], [30, 40], [12, 64], [100, 128]];
/// Rows of the requests of a trial, for each range of values.
const ROWS: [&[usize]; 5] = [&[1, 1], &[1, 2, 1, 1], &[1, 1, 1], &[2, 1, 1], &[1, 1, 1, 1, 1]];
/// The most rows of a trial.
const MOST_ROWS: usize = 32;
/// Elements of the inputs of a larger one: 28 photos.
const MOST_ELEMENTS: usize = 1 << 22;
/// How far padding may change a text's results where the attention mask is heeded: kernels for other sizes round
/// otherwise.
const HEEDED: f64 = 1e-3;
/// A model of which the first trial takes longer is tried with two requests at a time.
const SLOW: Duration = Duration::from_secs(2);
/// Beyond the least trials, other sizes are tried for this long, and others of the same size for as long as that.
const MORE_TIME: Duration = Duration::from_secs(2);
const AGAIN_TIME: Duration = Duration::from_millis(300);
/// The most trials of the same size.
const AGAIN: usize = 100;

/// What trials found about requests that share a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchVerdict {
    /// where it was tried
    pub(crate) provider: ExecutionProvider,
    /// in a session of several threads, or of as many as the options say
    multi_threaded: RowDifferences,
    /// in a single-threaded session, where requests may come to run in one
    single_threaded: Option<RowDifferences>,
    /// between the two, of requests alone
    threads: TensorDifference,
    /// of open dimensions, with which the model runs
    pub(super) size: usize,
}

/// How far rows in a batch are from what they are alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RowDifferences {
    /// beside rows of the same sizes
    equal_lengths: Finding,
    /// of texts that are padded to the longest; `None` for models whose inputs are never padded
    padded: Option<Finding>,
}

/// The largest difference of some trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) difference: TensorDifference,
    /// the first difference, for people
    pub(super) reason: Option<String>,
    /// the first operator whose results differ
    operator: Option<String>,
}

impl Default for Finding {
    fn default() -> Self {
        Self { difference: TensorDifference::NONE, reason: None, operator: None }
    }
}

impl Finding {
    fn note(&mut self, difference: TensorDifference, reason: impl FnOnce() -> String) {
        if !difference.same_bits {
            self.reason.get_or_insert_with(reason);
        }
        self.difference = self.difference.max(difference);
    }

    fn merge(mut self, other: Self) -> Self {
        self.note(other.difference, || other.reason.unwrap_or_default());
        self.operator = self.operator.or(other.operator);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_deref().unwrap_or("nothing changes"))?;
        let relative = self.difference.relative;
        if relative < f64::MAX {
            write!(f, ", by {relative:.1e} of its largest number")?;
        }
        if let Some(operator) = &self.operator {
            write!(f, "; the first operator that gives other bits is {operator}")?;
        }
        Ok(())
    }
}

impl BatchVerdict {
    /// Whether results depend on the number of threads, so that requests must not change between sessions of several
    /// threads and of one.
    pub(crate) fn needs_one_thread_mode(&self, tolerance: f64) -> bool {
        !self.threads.is_within(tolerance)
    }

    /// The differences in the sessions that serve requests.
    fn differences(&self, tolerance: f64) -> RowDifferences {
        match &self.single_threaded {
            Some(single_threaded) if self.needs_one_thread_mode(tolerance) => single_threaded.clone(),
            Some(other) => {
                let RowDifferences { equal_lengths, padded } = self.multi_threaded.clone();
                RowDifferences {
                    equal_lengths: equal_lengths.merge(other.equal_lengths.clone()),
                    padded: padded.map(|padded| padded.merge(other.padded.clone().unwrap_or_default())),
                }
            }
            None => self.multi_threaded.clone(),
        }
    }

    /// Beside rows of the same sizes.
    pub(super) fn equal_lengths(&self, tolerance: f64) -> Finding {
        self.differences(tolerance).equal_lengths
    }

    /// Of padded texts; `None` for models whose inputs cannot be padded, or that do not heed their mask.
    pub(super) fn padded(&self, tolerance: f64) -> Option<Finding> {
        let heeded = |padded: &Finding| padded.difference.relative <= HEEDED.max(tolerance);
        self.differences(tolerance).padded.filter(heeded)
    }

    /// The measured differences, as a part of the largest number of an output: zero for the same bits, `null` where
    /// results cannot be compared, or nothing is padded.
    pub(crate) fn to_json(&self, tolerance: f64) -> serde_json::Value {
        let number = |difference: TensorDifference| Some(difference.relative).filter(|number| *number < f64::MAX);
        let RowDifferences { equal_lengths, padded } = self.differences(tolerance);
        serde_json::json!({
            "same_bits": equal_lengths.difference.same_bits,
            "equal_lengths": number(equal_lengths.difference),
            "padded_same_bits": padded.as_ref().map(|padded| padded.difference.same_bits),
            "padded": padded.as_ref().and_then(|padded| number(padded.difference)),
            "operator": equal_lengths.operator,
            "single_threaded": self.needs_one_thread_mode(tolerance),
        })
    }
}

/// Runs made-up requests alone and together. Fails with the reason why requests of the model never share a run, or
/// cannot be tried.
pub(crate) fn examine(
    sessions: &SessionSet,
    signature: &Signature,
    options: &BatchOptions,
) -> Result<BatchVerdict, String> {
    let rules = BatchRules::from_signature(signature, options.pad)?;
    let trial = sessions.trial_sessions().ok_or("its sessions are in use")?;
    let samples = SampleRequests { signature, info: sessions.file().info() };
    let modes = trial.modes();
    let mut examination = Examination {
        trial,
        samples,
        rules: &rules,
        shapes: &options.shapes,
        findings: vec![Finding::default(); modes],
        threads: TensorDifference::NONE,
        different: Vec::new(),
        number: 0,
        is_slow: false,
    };

    let start = Instant::now();
    let size = examination.usable_size()?;
    examination.is_slow = start.elapsed() > SLOW;
    let row = examination.samples.make(ValueRange::ALL[0], size, 1, 0);
    let row: usize = row.iter().flatten().map(|(_, tensor)| tensor.len()).sum();
    let largest = options.max_size.min(MOST_ELEMENTS / row.max(1)).clamp(2, MOST_ROWS);
    let mut more = MORE_SIZES.to_vec();
    if !rules.pads() {
        more.push(224);
    }
    let sizes = |number: usize, _| [size, more[number % more.len()]][usize::from(number >= ROWS.len())];
    examination.try_all(largest, more.len(), &sizes);
    let equal_lengths = examination.take_findings(sessions);

    let padded = rules.pads().then(|| {
        let lengths = |number: usize, request: usize| PADDED_LENGTHS[number % PADDED_LENGTHS.len()][request % 2];
        examination.try_all(largest, 0, &lengths);
        examination.take_findings(sessions)
    });
    let threads = examination.threads;

    let mut differences: Vec<_> = match padded {
        Some(padded) => equal_lengths
            .into_iter()
            .zip(padded)
            .map(|(equal_lengths, padded)| RowDifferences { equal_lengths, padded: Some(padded) })
            .collect(),
        None => equal_lengths.into_iter().map(|equal_lengths| RowDifferences { equal_lengths, padded: None }).collect(),
    };
    let single_threaded = (modes > 1).then(|| differences.pop()).flatten();
    let multi_threaded = differences.pop().ok_or("it was not tried")?;
    Ok(BatchVerdict { provider: sessions.options().provider, multi_threaded, single_threaded, threads, size })
}

struct Examination<'a> {
    trial: TrialSessions<'a>,
    samples: SampleRequests<'a>,
    rules: &'a BatchRules,
    shapes: &'a ShapeLadder,
    /// of each mode of sessions
    findings: Vec<Finding>,
    threads: TensorDifference,
    /// the first requests whose rows differ
    different: Vec<ModelInputs>,
    /// of trials so far: the seed
    number: usize,
    is_slow: bool,
}

impl Examination<'_> {
    /// The first size of open dimensions with which the model runs.
    fn usable_size(&mut self) -> Result<usize, String> {
        let mut last = "its inputs are too large to try".to_owned();
        for size in SIZES {
            match self.round(ValueRange::ALL[0], ROWS[0], &|_| size) {
                Some(Ok(())) => return Ok(size),
                Some(Err(failure)) => last = format!("it cannot be tried: {failure}"),
                None => {}
            }
        }
        Err(last)
    }

    /// Tries each range of values, the `largest` batch, `more` other sizes, and others again while that is cheap.
    /// `sizes` gives the sizes of a trial's requests.
    fn try_all(&mut self, largest: usize, more: usize, sizes: &dyn Fn(usize, usize) -> usize) {
        let start = Instant::now();
        for (number, range) in ValueRange::ALL.into_iter().enumerate() {
            let rows = if self.is_slow { ROWS[0] } else { ROWS[number % ROWS.len()] };
            self.round(range, rows, &|request| sizes(number, request));
        }
        if self.is_slow {
            return;
        }
        self.round(ValueRange::ALL[0], &vec![1; largest], &|request| sizes(0, request));
        for number in ROWS.len()..ROWS.len() + more {
            if start.elapsed() > MORE_TIME {
                return;
            }
            let range = ValueRange::ALL[number % ValueRange::ALL.len()];
            self.round(range, ROWS[0], &|request| sizes(number, request));
        }
        let start = Instant::now();
        for number in 0..AGAIN {
            if start.elapsed() > AGAIN_TIME || self.findings.iter().any(|finding| !finding.difference.same_bits) {
                return;
            }
            let rows = vec![1; 2 + number % largest.min(8)];
            let range = ValueRange::ALL[number % ValueRange::ALL.len()];
            self.round(range, &rows, &|request| sizes(number % ROWS.len(), request));
        }
    }

    /// Runs requests of these rows and sizes alone and together in each mode. `None` if none can be made up; an error
    /// is a request that fails alone.
    fn round(
        &mut self,
        range: ValueRange,
        rows: &[usize],
        sizes: &dyn Fn(usize) -> usize,
    ) -> Option<Result<(), String>> {
        self.number += 1;
        let seed = self.number * MOST_ROWS;
        let make = |(request, rows): (usize, &usize)| self.samples.make(range, sizes(request), *rows, seed + request);
        let requests: Vec<_> = rows.iter().enumerate().map(make).collect::<Option<_>>()?;
        Some(self.compare(&requests))
    }

    fn compare(&mut self, requests: &[ModelInputs]) -> Result<(), String> {
        let together: Vec<_> = requests.iter().collect();
        let mut first: Option<Vec<Vec<Tensor>>> = None;
        for mode in 0..self.trial.modes() {
            let mut run = |inputs: &ModelInputs| self.trial.run(mode, inputs);
            let finding = difference(&mut run, self.rules, self.shapes, &together)?;
            if !finding.0.difference.same_bits && self.different.is_empty() {
                self.different = requests.to_vec();
            }
            let mine = std::mem::take(&mut self.findings[mode]);
            self.findings[mode] = mine.merge(finding.0);
            match &first {
                None => first = Some(finding.1),
                Some(first) => {
                    let pairs = first.iter().flatten().zip(finding.1.iter().flatten());
                    self.threads =
                        pairs.fold(self.threads, |most, (one, other)| most.max(TensorDifference::between(one, other)));
                }
            }
        }
        Ok(())
    }

    /// The findings of each mode since the last time, with the first operator that differs.
    fn take_findings(&mut self, sessions: &SessionSet) -> Vec<Finding> {
        let modes = self.findings.len();
        let mut findings = std::mem::replace(&mut self.findings, vec![Finding::default(); modes]);
        let different = std::mem::take(&mut self.different);
        if !different.is_empty() {
            let operator = first_different_operator(sessions, self.rules, &different);
            for finding in findings.iter_mut().filter(|finding| !finding.difference.same_bits) {
                finding.operator.clone_from(&operator);
            }
        }
        findings
    }
}

/// Runs requests individually and batched; returns the difference and the individual results. An error is a request
/// that fails alone.
pub(super) fn difference(
    run: &mut dyn FnMut(&ModelInputs) -> Result<Vec<Tensor>, String>,
    rules: &BatchRules,
    shapes: &ShapeLadder,
    requests: &[&ModelInputs],
) -> Result<(Finding, Vec<Vec<Tensor>>), String> {
    let mut finding = Finding::default();
    let mut alone = Vec::new();

    for request in requests {
        let plain = run(request)?;
        // Alone, too, a request runs in a shape of the ladder.
        let rounded = if shapes.is_empty() { None } else { Some(joint(run, rules, shapes, &[request])) };

        alone.push(match rounded.transpose() {
            Ok(rounded) => {
                let rounded = rounded.and_then(|mut parts| parts.pop());
                let differences = plain.iter().zip(rounded.iter().flatten());
                let changed = differences
                    .map(|(one, other)| TensorDifference::between(one, other))
                    .find(|other| other.relative > HEEDED);
                if let Some(changed) = changed {
                    finding.note(changed, || "a request changes with the shape that it is filled up to".to_owned());
                }
                rounded.unwrap_or(plain)
            }
            Err(reason) => {
                finding.note(TensorDifference::UNRELATED, || reason);
                plain
            }
        });
    }

    // Alone they run, so from here on a failure is an answer.
    match joint(run, rules, shapes, requests) {
        Err(reason) => finding.note(TensorDifference::UNRELATED, || reason),
        Ok(parts) => {
            for (alone, together) in alone.iter().zip(&parts) {
                for (index, (alone, together)) in alone.iter().zip(together).enumerate() {
                    let changed = || format!("output {index} of a request changes with what runs beside it");
                    finding.note(TensorDifference::between(alone, together), changed);
                }
            }
        }
    }
    Ok((finding, alone))
}

/// The results of each request, of one run of all.
fn joint(
    run: &mut dyn FnMut(&ModelInputs) -> Result<Vec<Tensor>, String>,
    rules: &BatchRules,
    shapes: &ShapeLadder,
    requests: &[&ModelInputs],
) -> Result<Vec<Vec<Tensor>>, String> {
    let joined = rules.join(requests, shapes).map_err(|error| error.to_string())?;
    let outputs =
        run(&joined.inputs).map_err(|failure| format!("{} requests together fail: {failure}", requests.len()))?;
    joined.split(rules, &outputs)
}

/// Runs every shape in as many sessions at once as there are, so that a provider that compiles for each shape has
/// compiled it. Open dimensions without a list have this `size`.
pub(super) fn warm_up(
    sessions: &SessionSet,
    signature: &Signature,
    shapes: &ShapeLadder,
    size: usize,
) -> Result<(), String> {
    let samples = SampleRequests { signature, info: sessions.file().info() };
    for (rows, length) in shapes.shapes(size) {
        let request = samples.make(ValueRange::ALL[0], length, rows, 0);
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
