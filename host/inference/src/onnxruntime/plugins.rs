//! Execution providers from libraries that the operator names: registered with ONNX Runtime, and
//! chosen by the devices that they find.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use ort::AsPointer as _;
use ort::device::Device;
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;

use super::device_placement::DevicePlacement;
use super::native_options::NativeOptions;
use super::providers::Availability;
use crate::library::LibraryError;
use crate::providers::{ExecutionProvider, ProviderLibrary};
use gpux_core::catch_panic::{catch_panic, shorten};

/// A registered library.
struct Registered {
    path: PathBuf,
    /// the devices that it has found, by the addresses of ONNX Runtime's `OrtEpDevice`s, which live as long as the
    /// library is loaded
    devices: Vec<usize>,
}

static REGISTERED: LazyLock<Mutex<HashMap<ExecutionProvider, Registered>>> = LazyLock::new(Mutex::default);

/// Registers each library, unless its provider is registered already. A library that the operator did not name is
/// left out, with the reason, if it cannot be used.
pub(super) fn register(
    environment: &Environment,
    libraries: &[ProviderLibrary],
) -> Result<Vec<(ExecutionProvider, Availability)>, LibraryError> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut availability = Vec::new();
    for library in libraries {
        let availability_of = match register_one(environment, library, &mut registered) {
            Ok(has_device) if has_device => Availability::Available,
            Ok(_) => Availability::Unsupported(format!(
                "its library `{}` found no device on this machine",
                library.path.display()
            )),
            Err(error) if library.is_required => return Err(error),
            Err(error) => Availability::Unsupported(error.to_string()),
        };
        availability.push((library.provider, availability_of));
    }
    Ok(availability)
}

/// Whether the library, registered now or before, has a device.
fn register_one(
    environment: &Environment,
    library: &ProviderLibrary,
    registered: &mut HashMap<ExecutionProvider, Registered>,
) -> Result<bool, LibraryError> {
    let (name, path) = (library.provider.short_name(), &library.path);
    let fault =
        |reason: String| LibraryError::Plugin { name: name.to_owned(), path: path.clone(), reason: shorten(&reason) };
    let file = path.canonicalize().map_err(|error| fault(error.to_string()))?;
    if let Some(known) = registered.get(&library.provider) {
        if known.path == file {
            return Ok(!known.devices.is_empty());
        }
        return Err(fault(format!("this process has registered `{}` already", known.path.display())));
    }
    let before: Vec<_> = environment.devices().map(|device| address(&device)).collect();
    catch_panic(|| environment.register_ep_library(name, &file))
        .map_err(fault)?
        .map_err(|error| fault(error.to_string()))?;
    let devices: Vec<_> =
        environment.devices().map(|device| address(&device)).filter(|device| !before.contains(device)).collect();
    let has_device = !devices.is_empty();
    registered.insert(library.provider, Registered { path: file, devices });
    Ok(has_device)
}

/// Whether sessions of `provider` come from a registered library.
pub(super) fn is_registered(provider: ExecutionProvider) -> bool {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&provider)
}

fn address(device: &Device<'_>) -> usize {
    device.ptr().addr()
}

/// `builder` for a device of this provider's plug-in, with these options.
pub(super) fn with_device(
    builder: SessionBuilder,
    environment: &Environment,
    provider: ExecutionProvider,
    options: &NativeOptions,
) -> Result<SessionBuilder, String> {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = registered.get(&provider).map(|library| library.devices.as_slice()).unwrap_or_default();
    let is_own = |device: &Device<'_>| own.contains(&address(device));
    let is_of_kind = |device: &Device<'_>| options.device.is_none_or(|kind| device.hardware_device().ty() == kind);
    // One session, one device: the library names its best first.
    let Some(device) = environment.devices().find(|device| is_own(device) && is_of_kind(device)) else {
        return Err(match options.device {
            Some(kind) => format!("its library found no {kind:?} on this machine"),
            None => "its library found no device on this machine".to_owned(),
        });
    };
    // ONNX Runtime expects the provider's name as prefix of each option.
    let name = device.ep().map_err(|error| error.to_string())?;
    if name.len() > 100 {
        return Err("the name that it gives itself is too long".to_owned());
    }
    let options_for_device: Vec<_> =
        options.iter().map(|(option, value)| (format!("{name}.{option}"), value.to_owned())).collect();
    builder.with_devices([device], Some(&options_for_device)).map_err(|error| error.to_string())
}

/// Where the sessions of this provider's plug-in keep tensors.
pub(super) fn placement(environment: &Environment, provider: ExecutionProvider) -> DevicePlacement {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = registered.get(&provider).map(|library| library.devices.as_slice()).unwrap_or_default();
    let Some(device) = environment.devices().find(|device| own.contains(&address(device))) else {
        return DevicePlacement::default();
    };
    // `ort` panics for a device without memory of its own.
    let memory = catch_panic(|| device.memory_info(false)).ok();
    DevicePlacement::for_plugin(device.ep().unwrap_or_default(), memory.as_ref())
}

/// The library's part of the key of cached results.
pub(super) fn identity(library: &ProviderLibrary) -> String {
    let meta = library.path.metadata().ok();
    let modified = meta.as_ref().and_then(|meta| meta.modified().ok());
    format!(" {library} {} {modified:?}", meta.as_ref().map_or(0, std::fs::Metadata::len))
}
