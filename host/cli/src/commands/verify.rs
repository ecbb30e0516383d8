//! `gpux verify`: whether a pipeline gives the same in two places.

mod embeddings_client;
mod space;

use clap::Args;
use serde_json::json;

use super::schema::save_or_print;
use crate::exit::Exit;
use crate::input::InputArguments;
use crate::load_arguments::{LoadArguments, PipelineArguments};
use crate::measure::{CHILD_TIMEOUT, MeasureRequest};
use crate::printer::{Printer, pluralize, pretty, table};
use gpux::LoadOptions;
use gpux_author::{Accuracy, DiffStatistics, MeasureError, MeasureTarget, Measurement, read_output};
use gpux_core::Precision;
use gpux_inference::ExecutionProvider;

/// Runs the same input on two or more providers or engines, each in a process of its own, and says
/// how far their results lie apart. Ends with 1 if they differ by more than is accepted.
///
/// Examples:
///   gpux verify model.onnx --on cpu --on cuda
///   gpux verify . --file photo.jpg --on cpu --on openvino
///   gpux verify . --on embedded --on ./libonnxruntime.so=cpu
///   gpux verify . --file text.txt --precision bf16
///   gpux verify --space http://old:8080 http://new:8080
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    #[command(flatten)]
    input: InputArguments,

    /// A provider (with `:PRECISION`), `embedded`, or an engine library (with `=PROVIDER`); the first is
    /// what others are compared with [default: cpu, and with --precision the provider that has it, else
    /// the best other provider, else the embedded engine]
    #[arg(long, value_name = "PLACE")]
    on: Vec<MeasureTarget>,

    /// Two servers with OpenAI's embeddings, instead: whether what both give can lie in one index. They are sent the texts
    /// of the pipeline's golden cases, if it is named, and others. `?model=NAME` behind a URL names one of several
    #[arg(long, value_name = "URL", num_args = 2, conflicts_with_all = ["on", "input", "file"])]
    space: Option<Vec<String>>,

    /// With --space: the smallest cosine between both vectors of a text that is accepted
    #[arg(long, value_name = "NUMBER", default_value_t = 0.9999, requires = "space")]
    cosine: f64,

    /// With --space: the environment variable that holds a server's key; a second is that of the second server
    #[arg(long, value_name = "VARIABLE", requires = "space")]
    key_variable: Vec<String>,

    /// By how much a number may differ
    #[arg(long, value_name = "NUMBER", default_value_t = 1e-5)]
    absolute: f64,

    /// By what part of itself a number may differ besides
    #[arg(long, value_name = "NUMBER", default_value_t = 1e-3)]
    relative: f64,

    /// How many requests of the input to compare
    #[arg(long, value_name = "N", default_value_t = 16)]
    samples: usize,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    load: LoadArguments,
}

/// One output of one place, beside the first place's.
struct Row {
    place: String,
    output: String,
    statistics: DiffStatistics,
    accuracy: Accuracy,
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, false);
    let result = match &arguments.space {
        Some(urls) => space::verify(arguments, urls, printer),
        None => verify(arguments, printer),
    };
    match result {
        Ok(exit) | Err(exit) => exit,
    }
}

fn verify(arguments: &Arguments, printer: Printer) -> Result<Exit, Exit> {
    if arguments.input.is_streamed() {
        let message = "several places cannot share standard input: give a file";
        return Err(printer.fail("UsageError", message, Exit::Usage));
    }
    let load_options = arguments.load.options().map_err(|error| printer.error(&error))?;
    let places = places(arguments, &load_options, printer)?;
    let failed = |message: String| printer.fail("VerifyError", &message, Exit::Failed);
    let asked = MeasureRequest {
        pipeline: arguments.pipeline.path(),
        input: arguments.input.clone(),
        load_options,
        samples: arguments.samples,
        runs: 0,
        warmup: 0,
        timeout: None,
        cases: true,
        throughput: None,
        output: None,
    };
    let mut measured = Vec::new();
    // The results lie on disk until they are compared.
    let mut folders = Vec::new();
    for place in &places {
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let result = asked.run(place, folder.path(), CHILD_TIMEOUT);
        let result = result.map_err(|failed| refuse(arguments, place, &failed, printer))?;
        printer.note(&format!("{place}: {}", result.engine));
        measured.push(result);
        folders.push(folder);
    }
    let [reference, others @ ..] = measured.as_slice() else { return Ok(Exit::Done) };
    let mut rows = Vec::new();
    for (place, other) in places.iter().skip(1).zip(others) {
        compare(arguments, place, reference, other, &mut rows)
            .map_err(|message| failed(format!("{place}: {message}")))?;
    }
    Ok(report(arguments, &places, &measured, &rows, printer))
}

fn refuse(arguments: &Arguments, place: &MeasureTarget, failed: &MeasureError, printer: Printer) -> Exit {
    let is_chosen = arguments.on.is_empty() && *place == MeasureTarget::Embedded;
    let hint = if is_chosen {
        "\nthe CPU was to be compared with the embedded engine, as there is no other provider here; name what to compare: \
         `--on cpu --on PLACE`"
    } else {
        ""
    };
    printer.fail("VerifyError", &format!("{place}: {}{hint}", failed.message), failed.category.into())
}

/// The targets of `--on`, else the CPU and the best other target of this machine.
fn places(arguments: &Arguments, load_options: &LoadOptions, printer: Printer) -> Result<Vec<MeasureTarget>, Exit> {
    if arguments.on.len() == 1 {
        let message = "one place has nothing to be compared with: give --on twice or more";
        return Err(printer.fail("UsageError", message, Exit::Usage));
    }
    if !arguments.on.is_empty() {
        return Ok(arguments.on.clone());
    }
    if let Some(precision) = arguments.load.precision {
        let exact = MeasureTarget::Precision("cpu".to_owned(), Precision::Exact);
        return Ok(vec![exact, MeasureTarget::Precision("auto".to_owned(), precision)]);
    }
    let selected = gpux::internal::select_engine(load_options, &[]).map_err(|error| printer.error(&error))?;
    if selected.library.is_none() {
        let message = "there is only the embedded engine here: `gpux engine install` brings another to compare it with";
        return Err(printer.fail("UsageError", message, Exit::Environment));
    }
    let best = selected.engine.providers().first().copied().filter(|best| *best != ExecutionProvider::Cpu);
    let other = best.map_or(MeasureTarget::Embedded, |best| MeasureTarget::Provider(best.short_name().to_owned()));
    Ok(vec![MeasureTarget::Provider("cpu".to_owned()), other])
}

fn compare(
    arguments: &Arguments,
    place: &MeasureTarget,
    reference: &Measurement,
    other: &Measurement,
    rows: &mut Vec<Row>,
) -> Result<(), String> {
    let first = rows.len();
    for (reference, other) in reference.items.iter().zip(&other.items) {
        let source = &reference.source;
        let (reference, other) = match (&reference.result, &other.result) {
            (Ok(reference), Ok(other)) => (reference, other),
            // A request that fails on both targets counts as equal.
            (Err(_), Err(_)) => continue,
            (Err(error), Ok(_)) => return Err(format!("{source}: works here, but in the first place: {error}")),
            (Ok(_), Err(error)) => return Err(format!("{source}: {error}")),
        };
        for ((name, reference), (_, other)) in reference.iter().zip(other) {
            let (reference, other) = (read_output(reference)?, read_output(other)?);
            let statistics = DiffStatistics::compare(&reference, &other, arguments.absolute, arguments.relative);
            let known = rows[first..].iter().position(|row| row.output == *name);
            let at = known.map_or(rows.len(), |at| first + at);
            if known.is_none() {
                let (place, output) = (place.to_string(), name.clone());
                rows.push(Row { place, output, statistics: DiffStatistics::default(), accuracy: Accuracy::default() });
            }
            let row = &mut rows[at];
            row.statistics = std::mem::take(&mut row.statistics).merge(statistics);
            row.accuracy.add(&reference, &other);
        }
    }
    if rows.len() == first {
        let why = reference.items.iter().find_map(|item| item.result.as_ref().err());
        return Err(why.map_or("nothing came out that could be compared".to_owned(), Clone::clone));
    }
    Ok(())
}

fn report(
    arguments: &Arguments,
    places: &[MeasureTarget],
    measured: &[Measurement],
    rows: &[Row],
    printer: Printer,
) -> Exit {
    let same = rows.iter().all(|row| row.statistics.is_accepted());
    let requests = measured.first().map_or(0, |measured| measured.items.len());

    let text = if printer.json {
        let engines = places
            .iter()
            .zip(measured)
            .map(|(place, measured)| json!({ "on": place.to_string(), "engine": measured.engine }));
        let outputs = rows.iter().map(|row| {
            json!({ "on": row.place, "output": row.output, "accepted": row.statistics.is_accepted(),
                "difference": row.statistics, "cosine": row.accuracy.cosine,
                "top1": row.accuracy.top.map(|(same, all)| json!({ "same": same, "rows": all })),
            })
        });
        pretty(&json!({
            "same": same,
            "absolute": arguments.absolute,
            "relative": arguments.relative,
            "requests": requests,
            "places": engines.collect::<Vec<_>>(),
            "outputs": outputs.collect::<Vec<_>>(),
        }))
    } else {
        let line = |row: &Row| {
            let DiffStatistics { compared, different, absolute, relative, beyond, mismatch } = &row.statistics;
            let verdict = match mismatch {
                Some(why) => why.clone(),
                None if *different == 0 => "identical".to_owned(),
                None if *beyond == 0 => "accepted".to_owned(),
                None => format!("{beyond} differ by more than is accepted"),
            };
            let cosine = row.accuracy.cosine.map(|cosine| format!("{cosine:.6}")).unwrap_or_default();
            let top = row.accuracy.top.map(|(same, all)| format!("{same} of {all}")).unwrap_or_default();
            let numbers = [compared.to_string(), format!("{absolute:.2e}"), format!("{relative:.2e}"), cosine, top];
            [row.place.clone(), row.output.clone()].into_iter().chain(numbers).chain([verdict]).collect()
        };
        let heading = ["on", "output", "numbers", "largest difference", "relative", "cosine", "same top-1", ""];
        let rows = table(&heading, &[2, 3, 4, 5], rows.iter().map(line));
        let (absolute, relative) = (arguments.absolute, arguments.relative);
        let verdict = if same { "the same" } else { "NOT the same" };
        let requests = pluralize(requests, "request");
        format!("{rows}\n\n{verdict}, within {absolute} + {relative} × the number, over {requests}")
    };

    match save_or_print(printer, None, &text) {
        Exit::Done if !same => Exit::Failed,
        exit => exit,
    }
}
