//! `gpux engine`: which inference engines there are, and how to get one.

use std::path::Path;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde_json::{Value as Json, json};

use crate::exit::Exit;
use crate::load_arguments::LoadArguments;
use crate::printer::{Printer, pretty, table};
use gpux::GpuxError;
use gpux::LoadOptions;
use gpux_core::CacheDir;
use gpux_inference::{
    self, Embedded, ExecutionProvider, Hardware, InstallError, InstallRequest, InstalledLibrary, LibraryBuild,
    LibraryFile, LibraryOrigin, PluginFile, ProbeReport, Progress, ProviderChoice, ProviderLibrary, SkippedLibrary,
    options_of,
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the engines of this machine, their providers, and which would be used
    List {
        /// As JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        load: LoadArguments,
    },
    /// List the options of an execution provider, or of all
    Options {
        /// Which one: tensorrt, cuda, rocm, coreml, directml, webgpu, openvino
        provider: Option<ExecutionProvider>,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Install ONNX Runtime into gpux's cache, with your own package client (pip, else npm)
    Install {
        /// Which build: cpu, cuda (with TensorRT's provider), migraphx, directml, webgpu, openvino
        #[arg(default_value_t = LibraryBuild::Cpu)]
        build: LibraryBuild,

        /// Use only what is downloaded already
        #[arg(long)]
        offline: bool,

        /// Install ONNX Runtime with the provider built in, even if its plug-in runs on this machine
        #[arg(long)]
        whole: bool,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Install the pinned version of all that is installed, and remove other versions
    Update {
        /// Use only what is downloaded already
        #[arg(long)]
        offline: bool,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove what was installed
    Remove {
        /// Which: cpu, cuda, migraphx, directml, webgpu, openvino
        build: LibraryBuild,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn main(arguments: &Arguments) -> Exit {
    match &arguments.command {
        Command::List { json, load } => {
            let printer = crate::printer(*json, false);
            load.options().map_or_else(|error| printer.error(&error), |load_options| list(&load_options, printer))
        }
        Command::Options { provider, json } => options(*provider, crate::printer(*json, false)),
        Command::Install { build, offline, whole, json } => {
            with_cache(crate::printer(*json, false), |cache, printer| {
                let request = InstallRequest { cache, build: *build, offline: *offline, whole: *whole };
                install(&request, printer)
            })
        }
        Command::Update { offline, json } => {
            with_cache(crate::printer(*json, false), |cache, printer| update(&cache, *offline, printer))
        }
        Command::Remove { build, json } => {
            with_cache(crate::printer(*json, false), |cache, printer| remove(&cache, *build, printer))
        }
    }
}

/// One engine that there is.
struct EngineEntry {
    engine: String,
    origin: String,
    path: String,
    /// its providers, or why it cannot be loaded
    providers: Result<Vec<&'static str>, String>,
    used: bool,
    is_plugin: bool,
}

impl EngineEntry {
    /// Whether it was chosen among several that gpux installed.
    fn is_one_of_several(&self, all: &[Self]) -> bool {
        let installed = LibraryOrigin::Installed.to_string();
        self.origin == installed && all.iter().filter(|other| other.origin == installed && !other.is_plugin).count() > 1
    }
}

fn list(load_options: &LoadOptions, printer: Printer) -> Exit {
    // Choosing must not load anything here: a library is examined in a process of its own.
    let wanted: ProviderChoice = match load_options.providers.names.as_deref().unwrap_or("auto").parse() {
        Ok(choice) => choice,
        Err(error) => return printer.error(&GpuxError::from(error)),
    };

    let search = gpux::internal::engine_search(load_options, std::slice::from_ref(&wanted));
    let selection = search.choose();
    let found = selection.as_ref().ok().and_then(|choice| choice.found.clone());
    let used = found.filter(|_| load_options.engine.choice != gpux::EngineChoice::Embedded);
    let registered = match &selection {
        Ok(choice) if used.is_some() => choice.plugins.as_slice(),
        _ => &[],
    };

    let mut entries: Vec<_> =
        search.all().into_iter().map(|found| entry(&found, used.as_ref(), load_options)).collect();
    let skipped = selection.iter().flat_map(|choice| &choice.passed_over);
    let unseen = skipped.filter(|skipped| !entries.iter().any(|entry| Path::new(&entry.path) == skipped.found.path));
    // What others may have changed is not loaded.
    let unseen: Vec<_> = unseen
        .map(|SkippedLibrary { found, reason }| library_entry(found, found.version.clone(), Err(reason.clone())))
        .collect();
    entries.extend(unseen);
    entries.extend(search.plugins().iter().map(|plugin| plugin_entry(plugin, used.as_ref(), registered, load_options)));

    entries.push(EngineEntry {
        engine: Embedded::NAME.to_owned(),
        origin: "built in".to_owned(),
        path: String::new(),
        providers: Ok(vec!["CPUExecutionProvider"]),
        used: selection.is_ok() && !entries.iter().any(|entry| entry.used),
        is_plugin: false,
    });

    let why = match entries.iter().find(|entry| entry.used) {
        Some(_) if load_options.engine.choice == gpux::EngineChoice::Embedded => "it was asked for",
        Some(entry) if entry.path.is_empty() => "no ONNX Runtime library was found that can be used",
        Some(entry) if entry.is_one_of_several(&entries) && !wanted.providers().is_empty() => {
            "of what is installed, it has what is asked for, or else suits this machine best"
        }
        Some(entry) if entry.is_one_of_several(&entries) => "of what is installed, it suits this machine best",
        Some(entry) if entry.providers.is_err() => "it is the first in the order of the search, but it does not answer",
        Some(_) => "it is the first in the order of the search that is new enough",
        None => "none: what was named cannot be used",
    };

    let text = if printer.json {
        let engines: Vec<_> = entries.iter().map(entry_json).collect();
        pretty(&json!({ "engines": engines, "why": why }))
    } else {
        let rows = entries.iter().map(|entry| {
            let providers = match &entry.providers {
                Ok(names) => {
                    names.iter().map(|name| name.trim_end_matches("ExecutionProvider")).collect::<Vec<_>>().join(", ")
                }
                Err(_) => "none: see below".to_owned(),
            };
            let used = if entry.used { "→" } else { "" };
            vec![used.to_owned(), entry.engine.clone(), entry.origin.clone(), providers, entry.path.clone()]
        });
        let listed = table(&["", "engine", "from", "providers", "library"], &[], rows);
        let problems = entries.iter().filter_map(|entry| entry.providers.as_ref().err());
        let problems: Vec<_> = problems.map(|reason| format!("\n{reason}")).collect();
        format!("{listed}\n\n→ is used: {why}{}", problems.concat())
    };

    let written = printer.print_result(&text);
    match selection {
        Ok(_) => written,
        Err(error) => printer.error(&error.into()),
    }
}

fn entry(found: &LibraryFile, used: Option<&LibraryFile>, load_options: &LoadOptions) -> EngineEntry {
    let report: Result<ProbeReport, String> = match &load_options.program {
        Some(program) => gpux_inference::probe_in_child(program, &found.path, &[]).map_err(|error| error.to_string()),
        None => Err("not examined".to_owned()),
    };
    let version = report.as_ref().ok().map(|report| report.version.clone()).or_else(|| found.version.clone());
    let providers = report.map(|report| report.providers.iter().map(|provider| provider.name()).collect());
    EngineEntry { used: used.is_some_and(|used| used.path == found.path), ..library_entry(found, version, providers) }
}

fn library_entry(
    found: &LibraryFile,
    version: Option<String>,
    providers: Result<Vec<&'static str>, String>,
) -> EngineEntry {
    EngineEntry {
        engine: format!("ONNX Runtime {}", version.unwrap_or_else(|| "of unknown version".to_owned())),
        origin: found.origin.to_string(),
        path: found.path.display().to_string(),
        providers,
        used: false,
        is_plugin: false,
    }
}

/// A plug-in, asked beside the library in use.
fn plugin_entry(
    plugin: &PluginFile,
    used: Option<&LibraryFile>,
    registered: &[ProviderLibrary],
    load_options: &LoadOptions,
) -> EngineEntry {
    let PluginFile { library, origin, version } = plugin;
    let required = ProviderLibrary { is_required: true, ..library.clone() };
    let report = match (&load_options.program, used) {
        (Some(program), Some(used)) => gpux_inference::probe_in_child(program, &used.path, &[required])
            .map_err(|error| error.to_string())
            .and_then(|report| report.missing.first().map_or(Ok(()), |reason| Err(reason.clone()))),
        _ => Err(format!("`{}` is a plug-in, and there is no ONNX Runtime that it goes with", library.path.display())),
    };
    EngineEntry {
        engine: format!("plug-in {} {}", library.provider, version.clone().unwrap_or_default()).trim_end().to_owned(),
        origin: origin.to_string(),
        path: library.path.display().to_string(),
        providers: report.map(|()| vec![library.provider.name()]),
        used: registered.contains(library),
        is_plugin: true,
    }
}

fn entry_json(entry: &EngineEntry) -> Json {
    let (providers, problem) = match &entry.providers {
        Ok(providers) => (Some(providers), None),
        Err(reason) => (None, Some(reason)),
    };
    json!({
        "engine": entry.engine, "from": entry.origin, "library": entry.path, "used": entry.used, "plugin": entry.is_plugin,
        "providers": providers, "problem": problem,
    })
}

/// Shows an installation as a bar.
struct InstallProgress {
    bar: ProgressBar,
    printer: Printer,
}

impl Progress for InstallProgress {
    fn stage(&mut self, what: &str) {
        if self.bar.is_hidden() {
            self.printer.note(what);
        } else {
            self.bar.set_message(what.to_owned());
        }
    }

    fn bytes(&mut self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done.min(total));
    }
}

/// The options of one provider, or of all that have some.
fn options(provider: Option<ExecutionProvider>, printer: Printer) -> Exit {
    let providers: Vec<_> = provider.map_or_else(|| ExecutionProvider::ALL.to_vec(), |provider| vec![provider]);
    let providers: Vec<_> = providers.into_iter().filter(|provider| !options_of(*provider).is_empty()).collect();
    let text = if printer.json {
        let option = |option: &gpux_inference::ProviderOption| {
            json!({
                "name": option.name, "aliases": option.aliases, "takes": option.kind.expected(),
                "default": option.default, "about": option.about,
            })
        };
        let listed = providers.iter().map(|provider| {
            let options: Vec<_> = options_of(*provider).iter().map(option).collect();
            (provider.short_name().to_owned(), json!(options))
        });
        pretty(&Json::Object(listed.collect()))
    } else if providers.is_empty() {
        "the CPU takes no options".to_owned()
    } else {
        let row = |option: &gpux_inference::ProviderOption| {
            let names: Vec<_> = [option.name].into_iter().chain(option.aliases.iter().copied()).collect();
            vec![names.join(", "), option.kind.expected(), option.default.to_owned(), option.about.to_owned()]
        };
        let listed = providers.iter().map(|provider| {
            let heading = [provider.short_name(), "takes", "default", ""];
            table(&heading, &[], options_of(*provider).iter().map(row))
        });
        listed.collect::<Vec<_>>().join("\n\n")
    };
    printer.print_result(&text)
}

/// What an installation, update or removal comes to: the text, and the same as JSON.
type Outcome = Result<(String, Json), InstallError>;

fn with_cache(printer: Printer, run: impl FnOnce(CacheDir, Printer) -> Outcome) -> Exit {
    let Some(cache) = CacheDir::from_environment() else {
        let message = format!("there is no folder for the engine: set {}", CacheDir::VARIABLE);
        return printer.fail("ProviderError", &message, Exit::Environment);
    };
    match run(cache, printer) {
        Ok((_, json)) if printer.json => printer.print_result(&pretty(&json)),
        Ok((text, _)) => printer.print_result(&text),
        Err(error) => printer.fail("ProviderError", &error.to_string(), Exit::Environment),
    }
}

fn install(request: &InstallRequest, printer: Printer) -> Outcome {
    if let Some(reason) = Hardware::detect().unavailable_reason(request.build.provider()) {
        printer.warning(&format!("{reason}: `{}` cannot run here as it is", request.build));
    }
    let mut bar = InstallProgress { bar: printer.download(), printer };
    let installed = gpux_inference::install(request, &mut bar);
    bar.bar.finish_and_clear();
    let InstalledLibrary { found, plugin, already } = installed?;
    let build = request.build;
    let done = if already { "is installed already" } else { "is installed" };
    let mut text =
        format!("ONNX Runtime {} {done}: {}", found.version.clone().unwrap_or_default(), found.path.display());
    if let Some(plugin) = &plugin {
        text += &format!("\nits plug-in for {build} {done}: {}", plugin.display());
    }
    if build != LibraryBuild::Cpu {
        text += &format!("\nit needs {}", build.needs());
    }
    let json = json!({
        "library": found.path, "version": found.version, "build": build.name(), "plugin": plugin,
        "needs": build.needs(), "already": already,
    });
    Ok((text, json))
}

/// Installs what is there in its pinned version, first, so that a failure leaves what there was.
fn update(cache: &CacheDir, offline: bool, printer: Printer) -> Outcome {
    let mut wanted: Vec<_> = gpux_inference::installed(cache);
    wanted.dedup_by_key(|installed| (installed.build, installed.plugin));
    let mut lines = Vec::new();
    let mut results = Vec::new();
    for installed in wanted {
        let (build, whole) = (installed.build, !installed.plugin);
        let (text, json) = install(&InstallRequest { cache: cache.clone(), build, offline, whole }, printer)?;
        lines.push(text);
        results.push(json);
    }
    let removed = gpux_inference::remove_outdated(cache)?;
    lines.extend(removed.iter().map(|folder| format!("removed {}", folder.display())));
    if lines.is_empty() {
        lines.push("nothing is installed: `gpux engine install` does".to_owned());
    }
    Ok((lines.join("\n"), json!({ "installed": results, "removed": removed })))
}

fn remove(cache: &CacheDir, build: LibraryBuild, printer: Printer) -> Outcome {
    let removed = gpux_inference::remove(cache, build)?;
    if removed.is_empty() {
        printer.note(&format!("nothing of `{build}` is installed"));
    }
    let lines: Vec<_> = removed.iter().map(|folder| format!("removed {}", folder.display())).collect();
    Ok((lines.join("\n"), json!({ "removed": removed })))
}
