//! `precision: auto`: the child that chooses beside a server, and the table of what was measured.

use super::input::InputArguments;
use super::printer::table;
use gpux::PrecisionReport;
use gpux::error::ReportedError;
use gpux::internal::PrecisionRequest;
use gpux_author::{MeasureError, choose_precision};
use gpux_core::child_process;

/// Runs in the child, which has no other threads yet; returns the line to print.
pub(super) fn answer(told: std::io::Result<PrecisionRequest>) -> String {
    let choice = told.map_err(MeasureError::from).and_then(|mut request| {
        if request.background {
            child_process::lower_priority();
        }
        confine(&mut request)?;
        let _ = child_process::exit_with_parent();
        let input = InputArguments::of_files(&request.samples);
        choose_precision(&request.pipeline, input, &request.load_options, &|_| ())
    });
    let choice = choice.map_err(|MeasureError { message, category }| ReportedError::new(category, message));
    serde_json::to_string(&choice).unwrap_or_default()
}

/// Confines this process if the pipeline is isolated, which its cache says.
#[cfg(target_os = "linux")]
fn confine(request: &mut PrecisionRequest) -> std::io::Result<()> {
    if request.load_options.cache.as_ref().is_some_and(|cache| cache.shared().is_some()) {
        // Opening the pipeline reports errors; what the system lacks, its worker reports.
        let definition =
            gpux::internal::Source::find(&request.pipeline).and_then(|source| source.read(&request.load_options));
        if let Ok(definition) = definition {
            gpux_worker::confine(&definition, &mut request.load_options)?;
        }
    }
    Ok(())
}

/// Pipelines are isolated on Linux alone.
#[cfg(not(target_os = "linux"))]
const fn confine(_: &mut PrecisionRequest) -> std::io::Result<()> {
    Ok(())
}

/// Why the choice may not be right.
pub(super) fn warning(report: &PrecisionReport) -> Option<&'static str> {
    report.is_synthetic.then_some(
        "the precision was chosen on made-up inputs: golden cases, `serving.warmup` or --sample make the choice about \
         yours",
    )
}

/// All candidates as a table, and the choice.
pub(super) fn text(report: &PrecisionReport) -> String {
    let row = |candidate: &gpux::PrecisionCandidate| {
        let decision = &report.decision;
        let is_chosen = (candidate.provider, candidate.precision) == (decision.provider, decision.precision);
        let gain = candidate.gain;
        let mut rounds = candidate.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        let numbers = [
            rounds.get(rounds.len() / 2).map(|median| format!("{median:.1}")),
            gain.map(|gain| format!("{:.2}", gain.median)),
            gain.map(|gain| format!("{:.2} to {:.2}", gain.low, gain.high)),
            gain.map(|_| rounds.len().to_string()),
            gain.map(|_| format!("{:.1e}", candidate.error.unwrap_or(f64::INFINITY))),
            candidate.cosine.map(|cosine| format!("{cosine:.5}")),
        ];
        let mark = if is_chosen { "→" } else { "" };
        let words = [mark.to_owned(), candidate.provider.to_string(), candidate.precision.to_string()];
        let numbers = numbers.into_iter().map(Option::unwrap_or_default);
        words.into_iter().chain(numbers).chain([candidate.refused.clone().unwrap_or_default()]).collect()
    };
    let heading =
        ["", "provider", "precision", "requests a second", "× exact", "from, to", "rounds", "error", "cosine", ""];
    let rows = table(&heading, &[3, 4, 5, 6, 7, 8], report.candidates.iter().map(row));
    format!("{rows}\n\nprecision: {}, at most {} off", report.decision, report.tolerance)
}
