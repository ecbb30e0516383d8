//! `gpux test`: golden cases of a step or a pipeline.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value as Json, json};

use super::build::build_step;
use crate::exit::Exit;
use crate::load_arguments::{LoadArguments, PipelineArguments};
use crate::printer::{Printer, TextOutput, duration, pretty};
use crate::progress::ProgressLine;
use gpux::LoadOptions;
use gpux_author::{
    BuildOptions, CASE_FILE, CASES_FOLDER, CaseOutcome, CaseReport, CaseRunner, EditDetector, StepFile, WatchedFiles,
};
use gpux_core::files::{lies_in, resolve_path};

/// Run the cases of a step or a pipeline and compare what comes out with what they expect.
///
/// A case is a folder in tests/ with a case.yml: inputs, and the outputs or the error that must
/// come. With the folder of a step, the step is built first if something has changed since the last build.
///
/// Examples:
///   gpux test                                    the step or the pipeline of this folder
///   gpux test my-step --case empty --verbose     one case, with what the step logged
///   gpux test my-step --bless                    what comes out now is what must come out
///   gpux test my-step --watch                    again after each change of a source or a case
///   gpux test --component my-step.wasm cases     a component alone, cases from elsewhere
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pipeline: PipelineArguments,

    /// Test this component; the folder named is then that of the cases
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    component: Option<PathBuf>,

    /// Only the case of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,

    /// Make what comes out what the cases expect, and show it; an error only where a case has `error:`
    #[arg(long)]
    bless: bool,

    /// Test the component that is there, without building the step; warns if a source is newer
    #[arg(long)]
    no_build: bool,

    /// Build the step even where nothing has changed
    #[arg(long, conflicts_with_all = ["no_build", "component"])]
    force: bool,

    /// Run again whenever a source, a case or the component changes, until ctrl-C
    #[arg(long, conflicts_with_all = ["json", "bless"])]
    watch: bool,

    /// The result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    load: LoadArguments,

    /// Show what the steps logged, and everything a build prints
    #[arg(long)]
    verbose: bool,
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    let printer = crate::printer(arguments.json, arguments.verbose);
    let load_options = match arguments.load.options() {
        Ok(load_options) => load_options,
        Err(error) => return printer.error(&error),
    };
    if arguments.watch {
        return watch(arguments, &load_options, printer);
    }
    run(arguments, &load_options, printer).unwrap_or_else(|exit| exit)
}

/// Runs the cases, and again after each change; ctrl-C ends the program.
fn watch(arguments: &Arguments, load_options: &LoadOptions, printer: Printer) -> Exit {
    if !arguments.pipeline.folder().exists() {
        return run(arguments, load_options, printer).unwrap_or_else(|exit| exit);
    }
    let mut detector = EditDetector::default();
    loop {
        let before = watched_files(arguments);
        let subject = subject(arguments, load_options, printer);
        let after = before.now();
        if let Err(Exit::Environment) = subject.and_then(|subject| run_cases(subject, arguments, load_options, printer))
        {
            return Exit::Environment;
        }
        let changed = detector.edited(&before, &after).unwrap_or_else(|| {
            printer.note("\nwaiting for a change; ctrl-C ends this");
            after.wait_for_change()
        });
        printer.note(&format!("{} has changed\n", changed.display()));
    }
}

/// The sources and cases of what is tested, but for the component that the test itself builds.
fn watched_files(arguments: &Arguments) -> WatchedFiles {
    let folder = arguments.pipeline.folder();
    let step = arguments.pipeline.step_folder().filter(|_| arguments.component.is_none() && !arguments.no_build);
    let built = step.and_then(|folder| StepFile::load(&folder).ok()).map(|step| folder.join(step.output));
    let folder = if folder.is_file() { folder.parent().map_or_else(|| ".".into(), Path::to_owned) } else { folder };
    WatchedFiles::of([folder].into_iter().chain(arguments.component.clone()).collect(), built)
}

fn run(arguments: &Arguments, load_options: &LoadOptions, printer: Printer) -> Result<Exit, Exit> {
    run_cases(subject(arguments, load_options, printer)?, arguments, load_options, printer)
}

fn run_cases(
    (mut runner, folder): (CaseRunner<'_>, PathBuf),
    arguments: &Arguments,
    load_options: &LoadOptions,
    printer: Printer,
) -> Result<Exit, Exit> {
    let cases = gpux_author::cases_in(&folder).map_err(|error| printer.usage(&error))?;
    if !load_options.policy.outside_files {
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        let around = resolve_path(parent.unwrap_or(Path::new(".")));
        // Expected results are written there by --bless, and mistakes in a file are shown.
        let leads_out = |case: &&PathBuf| {
            let file = resolve_path(&case.join(CASE_FILE));
            !matches!((&around, file), (Ok(around), Ok(file)) if lies_in(&file, around))
        };
        if let Some(case) = cases.iter().find(leads_out) {
            let message = format!(
                "the case `{}` leads out of the pipeline's folder; pass `--allow-outside` to permit that",
                case.display()
            );
            return Err(printer.fail("UsageError", &message, Exit::Usage));
        }
    }
    let wanted = |path: &PathBuf| {
        arguments.case.is_empty() || arguments.case.iter().any(|name| path.file_name().is_some_and(|n| n == &**name))
    };
    let cases: Vec<_> = cases.into_iter().filter(wanted).collect();
    if cases.is_empty() {
        let message = format!("no case of that name in `{}`", folder.display());
        return Err(printer.fail("UsageError", &message, Exit::Usage));
    }
    let mut summary = Summary::default();
    let line = ProgressLine::on_terminal(printer, "testing");
    runner = runner.on_phase(move |phase| line.set(phase));
    for case in cases {
        let report = runner.run(&case, arguments.bless).map_err(|error| printer.error(&error))?;
        summary.add(&report, printer);
    }
    Ok(summary.finish(printer))
}

/// The runner, and the folder of its cases.
fn subject<'a>(
    arguments: &Arguments,
    load_options: &'a LoadOptions,
    printer: Printer,
) -> Result<(CaseRunner<'a>, PathBuf), Exit> {
    if let Some(component) = &arguments.component {
        is_there(component, printer)?;
        return Ok((CaseRunner::for_component(component, load_options), arguments.pipeline.folder()));
    }
    if let Some(folder) = arguments.pipeline.step_folder() {
        let step = StepFile::load(&folder).map_err(|error| printer.error(&error.into()))?;
        if !arguments.no_build {
            let options = BuildOptions { strip: true, force: arguments.force, describe: false };
            build_step(&step, options, load_options, printer)?;
        }
        is_there(&step.component(), printer)?;
        if arguments.no_build
            && let Some(newer) = step.newest_stale_source()
        {
            let component = step.component();
            printer.warning(&format!(
                "`{}` is older than `{}`: what is tested was built before that changed; `gpux build` builds it again",
                component.display(),
                newer.display()
            ));
        }
        return Ok((CaseRunner::for_component(&step.component(), load_options), folder.join(CASES_FOLDER)));
    }
    let pipeline = arguments.pipeline.open(&arguments.load, printer).map_err(|error| printer.error(&error))?;
    let digest = pipeline.source().digest();
    if arguments.bless && digest.is_some() {
        let message = "--bless changes the cases, and files in the store do not change: bless them in the pipeline's own \
                       folder, and `gpux store add` it again";
        return Err(printer.fail("UsageError", message, Exit::Usage));
    }
    let folder = pipeline.path().parent().unwrap_or(Path::new(".")).join(CASES_FOLDER);
    if let Some(digest) = digest.filter(|_| !folder.exists()) {
        let message = format!(
            "the pipeline has no cases ({digest}): they are made in its own folder, and `gpux bundle` takes them along"
        );
        return Err(printer.fail("UsageError", &message, Exit::Usage));
    }
    Ok((CaseRunner::for_pipeline(pipeline, load_options), folder))
}

fn is_there(component: &Path, printer: Printer) -> Result<(), Exit> {
    if component.is_file() {
        return Ok(());
    }
    let message =
        format!("there is no component `{}`; `gpux build` makes that of a step's folder", component.display());
    Err(printer.fail("UsageError", &message, Exit::Usage))
}

/// The cases so far.
#[derive(Default)]
pub(crate) struct Summary {
    texts: TextOutput,
    cases: Vec<Json>,
    passed: usize,
    blessed: usize,
    failed: usize,
    wrong: usize,
}

impl Summary {
    /// Counts a case and shows how it ended.
    pub(crate) fn add(&mut self, report: &CaseReport, printer: Printer) {
        let (word, lines) = match &report.outcome {
            CaseOutcome::Passed => ("passed", &[][..]),
            CaseOutcome::Blessed(lines) => ("blessed", lines.as_slice()),
            CaseOutcome::Failed(lines) => ("FAILED", lines.as_slice()),
            CaseOutcome::Invalid(_) => ("WRONG", &[][..]),
        };
        *match report.outcome {
            CaseOutcome::Passed => &mut self.passed,
            CaseOutcome::Blessed(_) => &mut self.blessed,
            CaseOutcome::Failed(_) => &mut self.failed,
            CaseOutcome::Invalid(_) => &mut self.wrong,
        } += 1;
        if printer.json {
            self.cases.push(to_json(report, word, lines));
            return;
        }
        let mut text = format!("{word:7} {}", report.name);
        // A case that is rejected before its run has no time.
        if matches!(report.outcome, CaseOutcome::Passed) && !report.time.is_zero() {
            text += &format!("  {}", duration(report.time));
        }
        for line in lines {
            text += &format!("\n        {line}");
        }
        self.texts.write(printer, &text);
        for line in &report.log {
            printer.detail(&format!("        log: {line}"));
        }
        if let CaseOutcome::Invalid(error) = &report.outcome {
            printer.error(error);
        }
    }

    /// Shows the sum, and says how it ended.
    pub(crate) fn finish(self, printer: Printer) -> Exit {
        let Self { mut texts, cases, passed, blessed, failed, wrong } = self;
        let text = if printer.json {
            pretty(&json!({ "cases": cases, "passed": passed, "blessed": blessed, "failed": failed, "wrong": wrong }))
        } else {
            let counts = [(passed, "passed"), (blessed, "blessed"), (failed, "failed"), (wrong, "wrong")];
            let counts: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).collect();
            let counts: Vec<_> = counts.iter().map(|(count, word)| format!("{count} {word}")).collect();
            format!("\n{}", counts.join(", "))
        };
        texts.write(printer, &text);
        let written = texts.end(printer);
        match (wrong, failed) {
            (0, 0) => written,
            (0, _) => Exit::Failed,
            _ => Exit::Usage,
        }
    }
}

fn to_json(report: &CaseReport, word: &str, lines: &[String]) -> Json {
    let mut json = json!({
        "name": report.name,
        "description": report.description,
        "outcome": word.to_lowercase(),
        "differences": lines,
        "time_ms": report.time.as_secs_f64() * 1e3,
        "log": report.log,
    });
    if let CaseOutcome::Invalid(error) = &report.outcome {
        json["error"] = error.to_json();
    }
    json
}
