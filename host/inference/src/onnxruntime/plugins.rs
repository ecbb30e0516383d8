//! Execution providers from libraries that the operator names: registered with ONNX Runtime, and
//! chosen by the devices that they find.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use ort::AsPointer as _;
use ort::device::Device;
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;

use super::device_placement::DevicePlacement;
use super::providers::Availability;
use crate::library::LibraryError;
use crate::providers::{ExecutionProvider, PluginName, ProviderLibrary};
use gpux_core::catch_panic::{catch_panic, shorten};

/// The devices that each registered library has found, by the addresses of ONNX Runtime's `OrtEpDevice`s,
/// which live as long as the library is loaded.
static REGISTERED: LazyLock<Mutex<HashMap<PluginName, Vec<usize>>>> = LazyLock::new(Mutex::default);

/// Registers each library, unless it is registered already.
pub(super) fn register(
    environment: &Environment,
    libraries: &[ProviderLibrary],
) -> Result<Vec<(ExecutionProvider, Availability)>, LibraryError> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut availability = Vec::new();
    for library in libraries {
        let found = match registered.get(&library.name) {
            Some(found) => found.clone(),
            None => register_one(environment, library)?,
        };
        let availability_of = if found.is_empty() {
            Availability::Unsupported(format!(
                "its library `{}` found no device on this machine",
                library.path.display()
            ))
        } else {
            Availability::Available
        };
        registered.insert(library.name, found);
        availability.push((ExecutionProvider::Plugin(library.name), availability_of));
    }
    Ok(availability)
}

fn register_one(environment: &Environment, library: &ProviderLibrary) -> Result<Vec<usize>, LibraryError> {
    let (name, path) = (library.name.as_str(), &library.path);
    let fault =
        |reason: String| LibraryError::Plugin { name: name.to_owned(), path: path.clone(), reason: shorten(&reason) };
    let file = path.canonicalize().map_err(|error| fault(error.to_string()))?;
    let before: Vec<_> = environment.devices().map(|device| address(&device)).collect();
    catch_panic(|| environment.register_ep_library(name, &file))
        .map_err(fault)?
        .map_err(|error| fault(error.to_string()))?;
    Ok(environment.devices().map(|device| address(&device)).filter(|device| !before.contains(device)).collect())
}

fn address(device: &Device<'_>) -> usize {
    device.ptr().addr()
}

/// `builder` for the devices of the plug-in called `name`, with these options.
pub(super) fn with_device(
    builder: SessionBuilder,
    environment: &Environment,
    name: PluginName,
    options: &[(&str, &str)],
) -> Result<SessionBuilder, String> {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = registered.get(&name).map(Vec::as_slice).unwrap_or_default();
    let devices: Vec<_> = environment.devices().filter(|device| own.contains(&address(device))).collect();
    // One session, one device: the library names its best first.
    let Some(device) = devices.into_iter().next() else { return Err("its library found no device".to_owned()) };
    // ONNX Runtime expects the provider's name as prefix of each option.
    let provider = device.ep().map_err(|error| error.to_string())?;
    if provider.len() > 100 {
        return Err("the name that it gives itself is too long".to_owned());
    }
    let options_for_device: Vec<_> =
        options.iter().map(|(option, value)| (format!("{provider}.{option}"), (*value).to_owned())).collect();
    builder.with_devices([device], Some(&options_for_device)).map_err(|error| error.to_string())
}

/// Where the sessions of the plug-in called `name` keep tensors.
pub(super) fn placement(environment: &Environment, name: PluginName) -> DevicePlacement {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = registered.get(&name).map(Vec::as_slice).unwrap_or_default();
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
