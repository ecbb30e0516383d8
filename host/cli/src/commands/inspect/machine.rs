//! `gpux inspect` without arguments: what this machine has, and what each provider would need.

use serde_json::{Value as Json, json};

use super::{Report, plain};
use crate::printer::{size, table};
use gpux::GpuxError;
use gpux::LoadOptions;
use gpux_inference::{
    self, ExecutionProvider, Hardware, LibraryBuild, LibraryFile, LibrarySearch, ProbeReport, ProviderChoice,
    ProviderInfo, ProviderManager,
};

/// Describes this machine.
pub(super) fn show(load_options: &LoadOptions) -> Result<Report, GpuxError> {
    // All plug-ins, so that each provider can be described.
    let choices = [ProviderChoice::Fastest];
    let mut load_options = load_options.clone();
    let unusable = load_options.drop_unusable_cache();
    let load_options = &load_options;
    let mut selected = gpux::internal::select_engine(load_options, &choices)?;
    selected.warnings.splice(..0, unusable);
    match load_options.sandbox() {
        Ok(sandbox) => selected.warnings.extend(sandbox.warning().map(str::to_owned)),
        Err(error) => selected.warnings.push(error.to_string()),
    }

    let hardware = Hardware::detect();
    let manager = ProviderManager::new(selected.engine.as_ref());
    let libraries = libraries(&gpux::internal::engine_search(load_options, &choices), load_options);
    let providers: Vec<_> = ExecutionProvider::ALL
        .into_iter()
        .map(|provider| Row::new(provider, &manager.provider_info(provider), hardware, &libraries))
        .collect();
    let cache = load_options.cache.as_ref().map(|cache| cache.root().display().to_string());

    let json = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "engine": selected.engine.name(),
        "engine_source": selected.reason,
        "warnings": selected.warnings,
        "provider": manager.best_provider(None).ok().map(ExecutionProvider::name),
        "providers": providers.iter().map(Row::to_json).collect::<Vec<_>>(),
        "devices": selected.engine.devices(),
        "libraries": libraries.iter().map(Library::to_json).collect::<Vec<_>>(),
        "hardware": hardware,
        "cores": hardware.cpu.cores,
        "cache": cache,
    });

    let mut facts = vec![
        ("gpux", env!("CARGO_PKG_VERSION").to_owned()),
        ("engine", format!("{} ({})", selected.engine.name(), selected.reason)),
    ];
    facts.extend(machine(hardware));
    facts.push(("cache", cache.unwrap_or_else(|| "none".to_owned())));
    let facts = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();

    let rows = providers.iter().map(|row| {
        let available = if row.available { "yes" } else { "no" };
        vec![row.provider.name().to_owned(), available.to_owned(), row.told.clone()]
    });
    let mut text = format!("{}\n\n{}", plain(facts), table(&["provider", "available", ""], &[], rows));
    if !libraries.is_empty() {
        let rows = libraries.iter().map(Library::row);
        text += &format!("\n\n{}", table(&["library", "version", "providers", "devices"], &[], rows));
    }

    let device =
        |device: gpux_inference::Device| vec![device.provider, device.vendor, device.kind, device.id.to_string()];
    let devices: Vec<_> = selected.engine.devices().into_iter().map(device).collect();
    if !devices.is_empty() {
        text += &format!("\n\n{}", table(&["device of", "vendor", "kind", "id"], &[], devices));
    }
    for warning in &selected.warnings {
        text += &format!("\n\n{warning}");
    }
    Ok(Report::new(json, text))
}

/// Processor, memory, GPUs and drivers, a line each.
fn machine(hardware: &Hardware) -> Vec<(&'static str, String)> {
    let Hardware { cpu, memory, gpus, drivers } = hardware;
    let model = if cpu.model.is_empty() { cpu.arch } else { &cpu.model };
    let mut facts = vec![("processor", format!("{model} ({})", cpu.features.join(" ")).replace(" ()", ""))];
    let quota = cpu.quota.map(|quota| format!(", of which the container may use {quota}")).unwrap_or_default();
    facts.push(("cores", format!("{}{quota}", cpu.cores)));
    if let Some(total) = memory.total {
        let available = memory.available.map(|bytes| format!(", {} available", size(bytes))).unwrap_or_default();
        let limit = memory.limit.map(|bytes| format!(", the container may use {}", size(bytes))).unwrap_or_default();
        facts.push(("memory", format!("{}{available}{limit}", size(total))));
    }
    let gpu = |gpu: &gpux_inference::Gpu| {
        let driver = gpu.driver.as_ref().map_or_else(|| "no driver".to_owned(), |driver| format!("driver {driver}"));
        format!("{} {} ({driver}, {})", gpu.vendor, gpu.name, gpu.place)
    };
    let gpus: Vec<_> = gpus.iter().map(gpu).collect();
    facts.push(("GPUs", if gpus.is_empty() { "none found".to_owned() } else { gpus.join("; ") }));
    if drivers.has_nvidia() {
        let version = drivers.nvidia.clone().unwrap_or_else(|| "of unknown version".to_owned());
        let library = match &drivers.cuda_library {
            Some(library) => library.display().to_string(),
            None => "libcuda was not found".to_owned(),
        };
        facts.push(("NVIDIA driver", format!("{version} ({library})")));
    }
    if let Some(loader) = &drivers.vulkan_loader {
        facts.push(("Vulkan", loader.display().to_string()));
    }
    if drivers.amd || drivers.rocm.is_some() {
        facts.push(("ROCm", drivers.rocm.clone().unwrap_or_else(|| "not found; the kernel has the driver".to_owned())));
    }
    facts
}

/// A library of ONNX Runtime on this machine, asked in a process of its own.
struct Library {
    found: LibraryFile,
    report: Result<ProbeReport, String>,
}

fn libraries(search: &LibrarySearch, load_options: &LoadOptions) -> Vec<Library> {
    let ask = |found: LibraryFile| {
        let report = match &load_options.program {
            Some(program) => {
                gpux_inference::probe_in_child(program, &found.path, &[]).map_err(|error| error.to_string())
            }
            None => Err("not examined".to_owned()),
        };
        Library { found, report }
    };
    search.all().into_iter().map(ask).collect()
}

impl Library {
    fn row(&self) -> Vec<String> {
        let path = self.found.path.display().to_string();
        match &self.report {
            Ok(report) => {
                let providers: Vec<_> = report.providers.iter().map(|provider| provider.short_name()).collect();
                let device = |device: &gpux_inference::Device| {
                    let provider = device.provider.trim_end_matches("ExecutionProvider");
                    format!("{provider}: {} {}", device.vendor, device.kind)
                };
                let devices: Vec<_> = report.devices.iter().map(device).collect();
                vec![path, report.version.clone(), providers.join(", "), devices.join(", ")]
            }
            Err(reason) => vec![path, self.found.version.clone().unwrap_or_default(), "none".into(), reason.clone()],
        }
    }

    fn to_json(&self) -> Json {
        let report = self.report.as_ref();
        json!({
            "path": self.found.path,
            "from": self.found.origin,
            "version": report.ok().map(|report| &report.version).or(self.found.version.as_ref()),
            "providers": report.ok().map(|report| {
                report.providers.iter().map(|provider| provider.name()).collect::<Vec<_>>()
            }),
            "devices": report.ok().map(|report| &report.devices),
            "problem": report.err(),
        })
    }
}

/// One provider: whether it can be used, and what would help.
struct Row {
    provider: ExecutionProvider,
    available: bool,
    told: String,
    missing: Option<String>,
    command: Option<String>,
}

impl Row {
    fn new(provider: ExecutionProvider, info: &ProviderInfo, hardware: &Hardware, libraries: &[Library]) -> Self {
        if info.available {
            let told = info.description.to_owned();
            return Self { provider, available: true, told, missing: None, command: None };
        }
        let build = LibraryBuild::with(provider);
        let offers =
            |library: &&Library| library.report.as_ref().is_ok_and(|report| report.providers.contains(&provider));
        let (missing, command) = if let Some(lacking) = hardware.unavailable_reason(provider) {
            // A library would not help.
            (lacking, None)
        } else if let Some(library) = libraries.iter().find(offers) {
            let command = format!("gpux run --engine-library {}", library.found.path.display());
            ("another library on this machine offers it".to_owned(), Some(command))
        } else {
            let told = info.missing.clone().unwrap_or_default();
            match told.split_once("; `gpux engine install") {
                Some((why, _)) => (why.to_owned(), Some(format!("gpux engine install {build}"))),
                None => (told, None),
            }
        };
        let told = match &command {
            Some(command) => format!("{}: {missing}; `{command}`", info.description),
            None => format!("{}: {missing}", info.description),
        };
        Self { provider, available: false, told, missing: Some(missing), command }
    }

    fn to_json(&self) -> Json {
        json!({
            "provider": self.provider.name(),
            "platform": self.provider.platform(),
            "available": self.available,
            "description": self.provider.description(),
            "missing": self.missing,
            "command": self.command,
            "needs": LibraryBuild::with(self.provider).needs(),
        })
    }
}
