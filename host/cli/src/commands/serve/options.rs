//! The flags of the server itself.

#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[cfg(target_os = "linux")]
use crate::load_arguments::LoadArguments;
use crate::printer::LogLevel;
use crate::server_log::LogFormat;
#[cfg(target_os = "linux")]
use gpux::LoadOptions;
#[cfg(target_os = "linux")]
use gpux_core::child_process;
use gpux_core::{Size, TimeSpan};
use gpux_serve::{IsolationPolicy, Otlp, Settings, StartPolicy, TlsFiles, TrustedProxies, TrustedProxy};
#[cfg(target_os = "linux")]
use gpux_serve::{MemoryLimits, MemoryWatch, WorkerCommand, WorkerOptions};

fn time(text: &str) -> Result<Duration, String> {
    text.parse::<TimeSpan>().map(|time| time.0).map_err(|error| error.to_string())
}

fn time_or_zero(text: &str) -> Result<Duration, String> {
    TimeSpan::parse_or_zero(text).map_err(|error| error.to_string())
}

/// `scheme://host`, with a port where it is not the scheme's own.
fn origin(text: &str) -> Result<String, String> {
    let is_origin = ["http://", "https://"].iter().any(|scheme| {
        let host = text.strip_prefix(scheme).unwrap_or_default();
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/*".contains(&byte))
    });
    if text == "*" || is_origin {
        return Ok(text.to_owned());
    }
    Err("write an origin, for example `https://app.example.com`, or `*` for all".to_owned())
}

/// A name of the server, without scheme and port.
fn host_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if text == "*" || is_name {
        return Ok(text.to_owned());
    }
    Err("write a name without scheme and port, for example `gpux.example.com`, or `*` for any".to_owned())
}

/// The permission bits of a file.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "write three octal digits, for example 600, 660 or 666".to_owned())
}

/// A path without a slash at its end.
fn root_path(text: &str) -> Result<String, String> {
    let path = gpux_serve::parse_root_path(text).map(str::to_owned);
    path.ok_or_else(|| "write the path of a URL, for example `/models`".to_owned())
}

/// Where pipelines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IsolationName {
    /// `pipeline` where several pipelines or tenants are served, else `none`
    Auto,
    /// in the server's process
    None,
    /// each in a process of its own
    Pipeline,
}

/// What only the server has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the operator's")]
pub(super) struct ServerArguments {
    /// Where pipelines run: `none` in the server's process, `pipeline` each in a confined process of its own, so that
    /// native code costs the requests of one pipeline at most (Linux), `auto` the second where several pipelines or
    /// the keys of several tenants are served
    #[arg(long, value_enum, default_value_t = IsolationName::Auto, value_name = "WHAT")]
    isolation: IsolationName,

    /// Refuse isolated pipelines where the kernel cannot confine their processes in everything
    #[arg(long)]
    isolation_strict: bool,

    /// How long after its deadline a step of an isolated pipeline may run before its process is killed
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    kill_after: Duration,

    /// Memory that the process of an isolated pipeline may take before it is killed [default: half of `--memory`; all
    /// of them together three quarters]
    #[arg(long, value_name = "SIZE")]
    worker_memory: Option<Size>,

    /// End where one of several pipelines cannot be loaded, and be ready only once all are; without it, the others are
    /// served, and it is tried again
    #[arg(long)]
    require_all: bool,

    /// How long the process of an isolated pipeline may load it before it is killed
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1h")]
    load_timeout: Duration,

    /// Load pipelines again when their files change; a kill -HUP does so at any time
    #[arg(long)]
    reload: bool,

    /// How long to go on taking requests when asked to end, so that whoever sends them can see that
    /// the server is not ready any more
    #[arg(long, value_name = "TIME", value_parser = time_or_zero)]
    drain_delay: Option<Duration>,

    /// How long requests under way may take when asked to end; 0: they are left behind [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time_or_zero)]
    drain: Option<Duration>,

    /// Connections at once: near this number, answers close them, and those without a request or idle for 5 s give
    /// way to new ones [default: as many as there are file descriptors and memory for, at most 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,

    /// How long a new connection may take to send the head of its first request [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    header_timeout: Option<Duration>,

    /// How long the body of a request may take to come [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    body_timeout: Option<Duration>,

    /// How long a connection may lie idle [default: 75s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    idle_timeout: Option<Duration>,

    /// Mode of the files of Unix sockets, in octal: who may write may connect
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "660")]
    socket_mode: u32,

    /// Certificate in PEM, followed by those between it and a trusted one; read again on kill -HUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// API keys, and what each allows; read again on kill -HUP. Without it, everybody may use
    /// everything
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,

    /// A name under which a reverse proxy on this machine asks for the server, `*` for any; may be
    /// repeated. Without --keys, requests from this machine that name another host are refused
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    allow_host: Vec<String>,

    /// A reverse proxy that is believed what it says of the client (`X-Forwarded-For`, `Forwarded`) and of the path
    /// (`X-Forwarded-Prefix`): an address, a network (`10.0.0.0/8`), or `unix` for those that connect to a Unix
    /// socket; may be repeated
    #[arg(long, value_name = "CIDR")]
    trusted_proxy: Vec<TrustedProxy>,

    /// The path under which a reverse proxy shows the server, for the page and for OpenAPI; the proxy may remove it
    /// from requests or leave it
    #[arg(long, value_name = "PATH", value_parser = root_path)]
    root_path: Option<String>,

    /// Let pages of this origin read answers; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors: Vec<String>,

    /// Write each answer to the log
    #[arg(long)]
    access_log: bool,

    /// What lines of the log look like
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,

    /// The least important lines of the log; answers are written with --access-log [default: GPUX_LOG, else info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(super) log_level: Option<LogLevel>,

    /// Send traces there, by OTLP on gRPC, for example http://localhost:4317, or https [default:
    /// OTEL_EXPORTER_OTLP_ENDPOINT, if it is set]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,

    /// Give the metrics under Triton's names (nv_inference_…) as well
    #[arg(long)]
    triton_metrics: bool,

    /// Let /predict answer Text Embeddings Inference's clients, as /classify does; gpux's own requests then go to
    /// /pipelines/NAME/predict
    #[arg(long)]
    tei_predict: bool,
}

impl ServerArguments {
    /// The destination of traces: these options, else OpenTelemetry's environment variables. Fails with a warning for the
    /// operator if the variables ask for something unsupported; the server then starts without traces.
    pub(super) fn traces(&self) -> Result<Option<Otlp>, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let first = |names: [&str; 2]| names.into_iter().find_map(variable);
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        if is_off {
            return Ok(None);
        }
        if let Some(endpoint) = &self.otlp {
            // Empty, it says that there are none.
            return Ok((!endpoint.is_empty()).then(|| Otlp { endpoint: endpoint.clone(), must: true }));
        }
        let endpoint = first(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]);
        let protocol = first(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
        match (endpoint, protocol) {
            (Some(endpoint), Some(protocol)) if protocol != "grpc" => Err(format!(
                "no traces are sent to `{endpoint}`: the environment asks for `{protocol}`, and gpux sends them by gRPC \
                 (`--otlp` says where)"
            )),
            (endpoint, _) => Ok(endpoint.map(|endpoint| Otlp { endpoint, must: false })),
        }
    }

    /// Whether the server ends where one pipeline cannot be loaded.
    pub(super) const fn requires_all(&self) -> bool {
        self.require_all
    }

    /// Overrides the settings with the given options.
    pub(super) fn apply(&self, settings: &mut Settings) {
        fn set<T>(setting: &mut T, said: Option<T>) {
            if let Some(said) = said {
                *setting = said;
            }
        }
        set(&mut settings.drain_delay, self.drain_delay);
        set(&mut settings.drain, self.drain);
        let tls_connections = self.tls_cert.is_some().then(|| settings.max_tls_connections());
        set(&mut settings.max_connections, self.max_connections.map(|most| most as usize).or(tls_connections));
        set(&mut settings.header_timeout, self.header_timeout);
        set(&mut settings.body_timeout, self.body_timeout);
        set(&mut settings.idle_timeout, self.idle_timeout);
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        settings.tls = files.map(|(certificate, key)| TlsFiles { certificate, key });
        settings.keys.clone_from(&self.keys);
        settings.cors.clone_from(&self.cors);
        set(&mut settings.root_path, self.root_path.clone());
        settings.allow_hosts.clone_from(&self.allow_host);
        settings.trusted_proxies = TrustedProxies(self.trusted_proxy.clone());
        settings.socket_mode = self.socket_mode;
        settings.access_log = self.access_log;
        settings.triton_metrics = self.triton_metrics;
        settings.tei_predict = self.tei_predict;
        settings.reload = self.reload;
        settings.golden_case = gpux_author::first_case_request;
        settings.isolation_strict = self.isolation_strict;
        if self.require_all {
            settings.start = StartPolicy::All;
        }
        settings.isolation = match self.isolation {
            IsolationName::Auto => IsolationPolicy::Auto,
            IsolationName::None => IsolationPolicy::None,
            IsolationName::Pipeline => IsolationPolicy::Pipeline,
        };
    }

    /// Whether there is a certificate.
    pub(super) const fn has_tls(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// The file of API keys.
    pub(super) fn keys(&self) -> Option<&Path> {
        self.keys.as_deref()
    }

    /// How the processes of isolated pipelines are started.
    #[cfg(target_os = "linux")]
    pub(super) fn worker(
        &self,
        load: &LoadArguments,
        load_options: &LoadOptions,
        settings: &Settings,
    ) -> std::io::Result<WorkerCommand> {
        let mut load_options = load_options.clone();
        load_options.serving = true;
        let memory = settings.memory.unwrap_or(usize::MAX) as u64;
        let limits = MemoryLimits { each: self.worker_memory.map_or(memory / 2, |size| size.0), all: memory / 4 * 3 };
        Ok(WorkerCommand {
            program: child_process::own_program()?,
            options: WorkerOptions { load_options, must_be_confined: self.isolation_strict, threads: settings.workers },
            environment: std::env::vars_os().filter(|(name, _)| is_needed(name, load)).collect(),
            load_timeout: self.load_timeout,
            kill_after: self.kill_after,
            memory: Arc::new(MemoryWatch::new(limits)),
            temporary: Arc::default(),
            templates: (!self.isolation_strict).then(Arc::default),
            has_reported_namespaces: Arc::default(),
        })
    }
}

/// Variables of the environment that the process of a pipeline needs: what finds and tunes libraries, and what the
/// operator lets it read. Others may be secrets. Of `GPUX_…`, a process gets those that its gpux.yml mentions.
#[cfg(target_os = "linux")]
fn is_needed(name: &OsStr, load: &LoadArguments) -> bool {
    const NAMES: &[&str] = &[
        "CONDA_PREFIX",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HOME",
        "LANG",
        "LD_LIBRARY_PATH",
        "PATH",
        "RUST_BACKTRACE",
        "TZ",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
    ];
    const PREFIXES: &[&str] = &[
        "CUDA_",
        "CUDNN_",
        "GOMP_",
        "GPUX_",
        "HIP_",
        "HSA_",
        "KMP_",
        "LC_",
        "MALLOC_",
        "MESA_",
        "MIGRAPHX_",
        "OMP_",
        "ONEAPI_",
        "OPENVINO_",
        "ORT_",
        "OV_",
        "ROCM_",
        "ROCR_",
        "TBB_",
        "VK_",
        "ZE_",
    ];
    let name = name.to_string_lossy();
    if load.names_variable(&name) {
        return true;
    }
    if load.is_secret(&name) {
        return false;
    }
    NAMES.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
