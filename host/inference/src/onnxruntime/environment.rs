//! The one ONNX Runtime library and environment of this process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ort::environment::{Environment, GlobalThreadPoolOptions, ThreadManager};

use crate::hardware::Cpu;
use crate::library::LibraryError;
use gpux_core::catch_panic::{catch_panic, shorten};
use gpux_core::threads::startable;

struct Loaded {
    path: PathBuf,
    /// see [`pool`]
    pool: usize,
    environment: Environment,
}

/// Never dropped: sessions of any thread may outlive every other owner.
static LOADED: OnceLock<Loaded> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The threads of the pool that were not started, in a process that copies of itself go on from: a copy has none of its
/// threads.
static DELAYED: Mutex<Option<Vec<ThreadMain>>> = Mutex::new(None);

type ThreadMain = Box<dyn FnOnce() + Send>;

/// The size of the main thread's stack, which ONNX Runtime's own threads have as well.
const STACK: usize = 8 << 20;

struct DelayedThreads;

impl ThreadManager for DelayedThreads {
    type Thread = ();

    fn create(&self, work: impl FnOnce() + Send + 'static) -> ort::Result<()> {
        delayed().get_or_insert_default().push(Box::new(work));
        Ok(())
    }

    /// The environment lasts as long as the process.
    fn join((): ()) -> ort::Result<()> {
        Ok(())
    }
}

fn delayed() -> std::sync::MutexGuard<'static, Option<Vec<ThreadMain>>> {
    DELAYED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has an environment that is made from now on start no threads before [`start_threads`].
pub(super) fn delay_threads() {
    delayed().get_or_insert_default();
}

/// Starts the threads that were delayed.
pub(super) fn start_threads() -> io::Result<()> {
    let threads = delayed().take().unwrap_or_default();
    threads.into_iter().try_for_each(|thread| {
        std::thread::Builder::new().name("gpux-engine".to_owned()).stack_size(STACK).spawn(thread).map(drop)
    })
}

/// The environment of the library at `path`, loading it if none is loaded yet.
pub(super) fn environment(path: &Path) -> Result<&'static Environment, LibraryError> {
    let broken = |reason: String| LibraryError::Broken { path: path.to_owned(), reason: shorten(&reason) };
    let path = path.canonicalize().map_err(|error| broken(error.to_string()))?;
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = LOADED.get() {
        if loaded.path == path {
            return Ok(&loaded.environment);
        }
        return Err(LibraryError::Another { loaded: loaded.path.clone(), asked: path });
    }
    // The library waits forever for a thread that does not start. The calling thread is one of the pool.
    let pool = 1 + startable(Cpu::detect().kernel_threads().saturating_sub(1));
    let environment = catch_panic(|| load(&path, pool)).map_err(broken)??;
    Ok(&LOADED.get_or_init(|| Loaded { path, pool, environment }).environment)
}

/// Threads of the pool that sessions share, including the calling one.
pub(super) fn pool() -> usize {
    LOADED.get().map_or(1, |loaded| loaded.pool)
}

/// The library that is loaded.
pub(super) fn loaded() -> Option<PathBuf> {
    LOADED.get().map(|loaded| loaded.path.clone())
}

fn load(path: &Path, pool: usize) -> Result<Environment, LibraryError> {
    let broken = |reason: String| LibraryError::Broken { path: path.to_owned(), reason: shorten(&reason) };
    let builder = ort::init_from(path).map_err(|error| match error {
        ort::LoadDynamicError::Dlopen { error, .. } => broken(error.to_string()),
        ort::LoadDynamicError::MissingApi { .. } => broken("it does not export `OrtGetApiBase`".to_owned()),
        ort::LoadDynamicError::InvalidVersionString => broken("it does not tell its version".to_owned()),
        ort::LoadDynamicError::BadVersion { version_str, .. } => {
            LibraryError::TooOld { path: path.to_owned(), found: version_str }
        }
    })?;
    // A pool for each session, as ONNX Runtime makes by default, has the threads of one session
    // look for work on the cores where another's work is.
    let threads = GlobalThreadPoolOptions::default().with_intra_threads(pool);
    // These would run several operators of a graph in parallel; no session here does.
    let threads = threads.and_then(|threads| threads.with_inter_threads(1));
    let is_delayed = delayed().is_some();
    let threads =
        if is_delayed { threads.and_then(|threads| threads.with_thread_manager(DelayedThreads)) } else { threads };
    let threads = threads.map_err(|error| broken(error.to_string()))?;
    // Errors are returned as values; the library's log would repeat them.
    let environment = builder
        .with_name("gpux")
        .with_telemetry(false)
        .with_global_thread_pool(threads)
        .with_logger(Arc::new(|_, _, _, _, _| {}))
        .build()
        .map_err(|error| broken(error.to_string()))?;
    environment.set_log_level(ort::logging::LogLevel::Fatal);
    Ok(environment)
}
