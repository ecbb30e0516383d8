//! `gpux serve`: pipelines on HTTP.

mod addresses;
mod events;
mod listen;
mod options;
mod precision;

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{ArgAction, Args};

#[cfg(feature = "grpc")]
use addresses::GrpcAddress;
use addresses::{check_addresses, socket_path};
use events::EventLogger;
use listen::{report, supervise_server};
use options::ServerArguments;
use precision::PrecisionChooser;

use crate::exit::Exit;
use crate::guard::SupervisorLink;
use crate::hub_pipeline::{self, PullArguments};
use crate::load_arguments::LoadArguments;
use crate::printer::{LogLevel, Printer};
use crate::server_log::{Log, LogFormat};
use gpux::GpuxError;
use gpux::LoadOptions;
use gpux::internal::Source;
use gpux_config::{FILE_NAMES, ServingSpec};
use gpux_core::Size;
#[cfg(not(target_os = "linux"))]
use gpux_serve::IsolationPolicy;
#[cfg(target_os = "linux")]
use gpux_serve::TemporaryFiles;
use gpux_serve::{
    Event, ListenError, Listeners, PipelineSource, Server, Settings, ShutdownOutcome, StartPolicy, serve,
};
use gpux_store::is_bundle;

/// How long the end waits for a terminal, which may be paused, to erase the line about loading.
const ERASE_LIMIT: Duration = Duration::from_secs(1);

/// Examples:
///   gpux serve
///   gpux serve my-model --port 9000
///   gpux serve detect classify --workers 4
///   gpux serve pipelines/ --host 127.0.0.1
///   gpux serve digits:1.0.0
///   gpux serve hf:sentence-transformers/all-MiniLM-L6-v2
///   curl --data-binary @photo.jpg -H 'content-type: image/jpeg' localhost:8080/predict
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    /// Folders with a gpux.yml, such files, names in them, models (.onnx) or components (.wasm) alone, bundles,
    /// names in the store, or models of the hub (hf:OWNER/NAME); of a folder without a gpux.yml, the pipelines in it [default: this folder]
    #[arg(value_name = "PIPELINE")]
    pipelines: Vec<String>,

    /// Port to listen on; 0 takes a free one [default: the only pipeline's `serving.port`, else 8080]
    #[arg(short, long)]
    port: Option<u16>,

    /// A second port to listen on, or a second Unix socket (`unix:PATH`), for gRPC clients that expect one of their
    /// own; the first takes gRPC as well
    #[cfg(feature = "grpc")]
    #[arg(long, value_name = "PORT")]
    grpc_port: Option<GrpcAddress>,

    /// Let clients load and unload pipelines (Open Inference Protocol); without it, they may not. Needs
    /// `--keys`, or a `--host` that only this machine reaches
    #[arg(long)]
    model_control: bool,

    /// Address to listen on, or `unix:PATH` for a Unix socket in place of an address and a port [default: the only
    /// pipeline's `serving.host`, else 0.0.0.0]
    #[arg(short = 'h', long)]
    host: Option<String>,

    /// Name of the file in each folder [default: gpux.yml, gpux.yaml or GPUXfile]
    #[arg(short, long, value_name = "NAME")]
    config: Option<String>,

    /// Threads that run requests [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Do not tell those who ask with `?trace=true` what each step of their request did
    #[arg(long)]
    no_trace: bool,

    /// Memory that the server counts with: bodies, answers and connections have their parts of it [default:
    /// that of the container or the machine]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,

    /// Largest body of a request [default: 128MiB, or all of `--body-memory` where that is less]
    #[arg(long, value_name = "SIZE")]
    max_body: Option<Size>,

    /// What the bodies of all requests may hold together, with what becomes of them, and large answers as much
    /// again; more are refused [default: a sixth of `--memory`, at most 1GiB]
    #[arg(long, value_name = "SIZE")]
    body_memory: Option<Size>,

    /// How many requests of one pipeline may wait; of more, the least urgent and those of whoever has the most are
    /// refused [default: 1024]
    #[arg(long, value_name = "N")]
    max_queue: Option<usize>,

    #[command(flatten)]
    pull: PullArguments,

    #[command(flatten)]
    server: ServerArguments,

    #[command(flatten)]
    load: LoadArguments,

    /// Errors and messages as JSON
    #[arg(long)]
    json: bool,

    /// Say more: engine, provider, where files were found
    #[arg(long)]
    verbose: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn main(mut arguments: Arguments) -> Exit {
    if let Some(keys) = arguments.server.keys() {
        arguments.load.reserve_variables_of(keys);
    }

    let supervisor = match SupervisorLink::connect() {
        Ok(supervisor) => supervisor,
        Err(error) => return crate::printer(arguments.json, arguments.verbose).environment(&error),
    };
    // The supervisor has warned already.
    let choose_printer = if supervisor.is_some() { crate::quiet_printer } else { crate::printer };
    let mut printer = choose_printer(arguments.json, arguments.verbose);
    printer.level = arguments.server.log_level.unwrap_or(printer.level);

    let load_options = match arguments.load.options() {
        Ok(load_options) => load_options,
        Err(error) => return printer.error(&error),
    };
    let fetch = |name: &mut String| arguments.pull.fetch(name, printer);
    if let Err(error) = arguments.pipelines.iter_mut().try_for_each(fetch) {
        return hub_pipeline::report(&error, printer);
    }
    let sources = match check_addresses(&arguments).and_then(|()| sources(&arguments)) {
        Ok(sources) => sources,
        Err(message) => return printer.fail("UsageError", &message, Exit::Usage),
    };

    raise_open_files();

    let is_restart = supervisor.as_ref().is_some_and(|(supervisor, _)| supervisor.is_restart());
    let mut settings = match settings(&arguments, &sources, &load_options, is_restart) {
        Ok(settings) => settings,
        Err(error) => return printer.error(&error),
    };

    #[cfg(target_os = "linux")]
    match arguments.server.worker(&arguments.load, &load_options, &settings) {
        Ok(mut worker) => {
            let folder = supervisor.as_ref().and_then(|(supervisor, _)| supervisor.temporary.clone());
            worker.temporary = Arc::new(folder.map(TemporaryFiles::at).unwrap_or_default());
            settings.worker = Some(worker);
        }
        Err(error) => return printer.environment(&error),
    }
    #[cfg(not(target_os = "linux"))]
    if settings.isolation == IsolationPolicy::Pipeline {
        return printer.fail("EnvironmentError", "`--isolation pipeline` needs Linux", Exit::Environment);
    }
    #[cfg(target_os = "linux")]
    let temporary = settings.worker.as_ref().map(|worker| worker.temporary.clone()).unwrap_or_default();

    let traces = arguments.server.traces();
    settings.otlp = traces.clone().unwrap_or_default();
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let format = arguments.server.log_format;
    let start_log = || {
        let log = Log::start(format, printer.level)?;
        Ok(EventLogger { printer, log, format, scheme, progress: Mutex::new(None) })
    };

    let is_supervised = supervisor.is_some();
    let (supervisor, listeners) = match supervisor {
        Some((supervisor, listeners)) => (Some(supervisor), listeners),
        None => match supervise_server(printer, &settings, start_log) {
            Ok(listeners) => (None, listeners),
            Err(exit) => return exit,
        },
    };
    let events = match start_log() {
        Ok(events) => Arc::new(events),
        Err(error) => return printer.environment(&error),
    };

    // Letting go of models may take long, and the process is about to end: the system frees them.
    let server = ManuallyDrop::new(Arc::new(Server::new(settings, load_options.clone())));
    let told = Arc::clone(&server);

    let shows_progress = format == LogFormat::Text && printer.level >= LogLevel::Info;
    if shows_progress {
        events.show_progress("loading and warming up");
    }
    let shown = Arc::clone(&events);

    if let Err(warning) = traces {
        events.warning(&warning);
    }
    if let Err(error) = PrecisionChooser::start(Arc::clone(&server), events.clone(), load_options) {
        events.warning(&format!("no precision is chosen beside the server: {error}"));
    }

    let on_event = move |event| {
        if let (Event::Ready(_), Some(supervisor)) = (&event, &supervisor) {
            supervisor.tell_ready();
        }
        events.log(&told, &event);
    };

    let result = serve(&server, listeners, sources, on_event);
    if !is_supervised {
        Listeners::remove_sockets(server.settings());
    }
    if let Some(erased) = shown.erase_progress() {
        let _ = erased.recv_timeout(ERASE_LIMIT);
    }
    #[cfg(target_os = "linux")]
    temporary.remove();

    if matches!(result, Ok(ShutdownOutcome::TimedOut)) {
        let message = "requests under way took longer than `--drain` and were left behind";
        shown.log.line(&printer.failure("TimeoutError", message));
    }
    shown.log.flush();

    exit_of(result, printer)
}

fn exit_of(result: Result<ShutdownOutcome, ListenError>, printer: Printer) -> Exit {
    match result {
        Ok(ShutdownOutcome::Drained) => Exit::Done,
        Ok(ShutdownOutcome::TimedOut) => Exit::Failed,
        Ok(ShutdownOutcome::Cut) => Exit::Interrupted,
        Err(error) => report(printer, error),
    }
}

/// Raises the limit of open files to the most that the system allows: each connection takes one.
#[cfg(unix)]
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Some systems allow less than they say; the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Nothing on this system.
#[cfg(not(unix))]
const fn raise_open_files() {}

/// Flags, then `serving` of the only pipeline, then defaults. A server that is started again has its sockets already, and
/// goes on without that pipeline.
fn settings(
    arguments: &Arguments,
    sources: &[PipelineSource],
    load_options: &LoadOptions,
    is_restart: bool,
) -> Result<Settings, GpuxError> {
    let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    let mut settings = arguments.memory.map_or_else(Settings::default, |memory| Settings::within(bytes(memory)));
    if let [PipelineSource(only)] = sources {
        match Source::find(only).and_then(|source| source.read(load_options)) {
            Ok(definition) => {
                let ServingSpec { port, host, .. } = &definition.spec().serving;
                (settings.port, settings.host) = (*port, host.clone());
            }
            Err(_) if is_restart && !arguments.server.requires_all() => {}
            Err(error) => return Err(error),
        }
    }
    if is_restart {
        settings.start = StartPolicy::Restart;
    }
    settings.port = arguments.port.unwrap_or(settings.port);
    #[cfg(feature = "grpc")]
    match &arguments.grpc_port {
        Some(GrpcAddress::Port(port)) => settings.grpc_port = Some(*port),
        Some(GrpcAddress::Socket(path)) => settings.grpc_socket = Some(path.clone()),
        None => {}
    }
    settings.model_control = arguments.model_control;
    match arguments.host.as_deref().map(|host| (host, socket_path(host))) {
        Some((_, Some(path))) => settings.socket = Some(path),
        Some((host, None)) => host.clone_into(&mut settings.host),
        None => {}
    }
    arguments.server.apply(&mut settings);
    settings.trace = !arguments.no_trace;
    settings.workers = arguments.workers.map_or(settings.workers, usize::from);
    settings.body_memory = arguments.body_memory.map_or(settings.body_memory, bytes);
    settings.max_body = arguments.max_body.map_or(Settings::MAX_BODY, bytes).min(settings.body_memory);
    settings.max_queue = arguments.max_queue.unwrap_or(settings.max_queue);
    Ok(settings)
}

/// The named pipelines; a folder of several adds each of them.
fn sources(arguments: &Arguments) -> Result<Vec<PipelineSource>, String> {
    let here = [".".to_owned()];
    let named = if arguments.pipelines.is_empty() { here.as_slice() } else { &arguments.pipelines };
    let mut sources = Vec::new();
    for name in named {
        let folder = Path::new(name);
        if let Some(config) = &arguments.config {
            sources.push(PipelineSource(folder.join(config).display().to_string()));
        } else if folder.is_dir() && !holds_pipeline(folder) && !is_bundle(folder) {
            let found = pipelines_in(folder).map_err(|error| format!("cannot read `{name}`: {error}"))?;
            if found.is_empty() {
                return Err(format!(
                    "there is no gpux.yml in `{name}`, nor in any folder of it; `gpux new pipeline NAME` makes one"
                ));
            }
            sources.extend(found.into_iter().map(|path| PipelineSource(path.display().to_string())));
        } else {
            sources.push(PipelineSource(name.clone()));
        }
    }
    Ok(sources)
}

fn holds_pipeline(folder: &Path) -> bool {
    FILE_NAMES.iter().any(|name| folder.join(name).is_file())
}

/// The folders in `folder` that hold a pipeline, and the models beside them.
fn pipelines_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| holds_pipeline(path) || is_model(path));
    paths.sort();
    Ok(paths)
}

fn is_model(path: &Path) -> bool {
    path.is_file() && matches!(Source::find(path), Ok(Source::Model(_)))
}
