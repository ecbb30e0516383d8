//! Options of execution providers: their tables, the checks of values, and the values passed on.
//!
//! A gpux.yml is not trusted: only options in the tables are passed on, and only the operator may
//! name a file, a library or an address.

mod tables;
mod value;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::ExecutionProvider;

/// An option of an execution provider.
#[derive(Clone, Copy, Debug)]
pub struct ProviderOption {
    /// its name, as ONNX Runtime has it
    pub name: &'static str,
    /// other names under which it is read
    pub aliases: &'static [&'static str],
    /// what a value must be
    pub kind: OptionKind,
    /// what holds without it
    pub default: &'static str,
    /// one line for people
    pub about: &'static str,
}

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// `true` or `false`
    Switch,
    /// a whole number
    Whole {
        /// the least
        least: i64,
        /// the most
        most: i64,
    },
    /// a number of bytes, `2GB`
    Size,
    /// one of these, in any case
    Choice(&'static [&'static str]),
    /// text of letters, digits and `.,:_-+*/()[]`, with a short description of its meaning
    Text(&'static str),
    /// shapes by input: `{ image: [1, 3, 224, 224] }` or `image:1x3x224x224`
    Shapes,
    /// a folder for the provider's files: `true` is one in gpux's cache, and only the operator
    /// may name another
    Folder,
    /// a file or a library, which only the operator may name
    File,
    /// bits that ONNX Runtime has spelled out since: the names of what each turns on
    Flags,
    /// known, and refused for this reason
    Refused(&'static str),
}

impl OptionKind {
    /// The expected value, for messages.
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Whole { least, most } => format!("a whole number from {least} to {most}"),
            Self::Size => "a size, such as 2GB".to_owned(),
            Self::Choice(names) => names.join(", "),
            Self::Text(what) => what.to_owned(),
            Self::Shapes => "shapes, such as { image: [1, 3, 224, 224] }".to_owned(),
            Self::Folder => "true (a folder in gpux's cache) or false; a path from the operator".to_owned(),
            Self::File => "a path, from the operator".to_owned(),
            Self::Flags => "a whole number from 0 to 63".to_owned(),
            Self::Refused(_) => "not supported".to_owned(),
        }
    }
}

/// The options of a provider.
pub const fn options_of(provider: ExecutionProvider) -> &'static [ProviderOption] {
    match provider {
        ExecutionProvider::TensorRt => tables::TENSORRT,
        ExecutionProvider::Cuda => tables::CUDA,
        ExecutionProvider::Rocm => tables::MIGRAPHX,
        ExecutionProvider::CoreMl => tables::COREML,
        ExecutionProvider::DirectMl => tables::DIRECTML,
        ExecutionProvider::WebGpu => tables::WEBGPU,
        ExecutionProvider::OpenVino => tables::OPENVINO,
        ExecutionProvider::Cpu | ExecutionProvider::Plugin(_) => &[],
    }
}

/// The origin of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// a gpux.yml
    File,
    /// the operator, who may name files
    Operator,
}

/// An option that cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct OptionError {
    /// whether the name is wrong, rather than the value
    pub in_name: bool,
    /// what is wrong
    pub message: String,
    /// what to do
    pub hint: Option<String>,
}

impl OptionError {
    fn name(message: String, hint: String) -> Self {
        Self { in_name: true, message, hint: Some(hint) }
    }
}

/// The checked options of each provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOptions(BTreeMap<ExecutionProvider, BTreeMap<String, OptionValue>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum OptionValue {
    /// this
    Value(String),
    /// a folder in gpux's cache
    InCache,
}

impl ProviderOptions {
    /// Sets an option, for every provider that has one of this name; `of` are the providers it may
    /// be meant for, empty for any.
    pub fn set(
        &mut self,
        of: &[ExecutionProvider],
        name: &str,
        value: &Json,
        source: OptionSource,
    ) -> Result<(), OptionError> {
        if let Some((plugin, option)) = plugin_option(name, source) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.0.entry(plugin).or_default().insert(option.to_owned(), OptionValue::Value(text));
            return Ok(());
        }
        let of = if of.is_empty() { &ExecutionProvider::ALL } else { of };
        let has = |provider: &ExecutionProvider| Some((*provider, find(*provider, name)?));
        let found: Vec<_> = of.iter().filter_map(has).collect();
        if found.is_empty() {
            return Err(unknown(of, name));
        }
        for (provider, option) in found {
            for (name, values) in value::values(provider, option, name, value, source)? {
                self.0.entry(provider).or_default().insert(name.to_owned(), values);
            }
        }
        Ok(())
    }

    /// Bounds the memory that a session takes on its device, in bytes, unless an option says it.
    pub fn limit_memory(&mut self, bytes: u64) {
        let limits = [(ExecutionProvider::Cuda, "gpu_mem_limit"), (ExecutionProvider::Rocm, "migraphx_mem_limit")];
        for (provider, name) in limits {
            let values = self.0.entry(provider).or_default();
            values.entry(name.to_owned()).or_insert_with(|| OptionValue::Value(bytes.to_string()));
        }
    }

    /// Adds the default caches, and places each provider's cache folders below `folder`; without one,
    /// nothing is cached.
    pub fn set_cache_folder(&mut self, folder: Option<&Path>) {
        // An engine of TensorRT takes minutes to build.
        let tensorrt = self.0.entry(ExecutionProvider::TensorRt).or_default();
        for (switch, path) in tables::TENSORRT_CACHES {
            let on = tensorrt.entry((*switch).to_owned()).or_insert_with(|| OptionValue::Value("1".to_owned()));
            if *on == OptionValue::Value("1".to_owned()) {
                tensorrt.entry((*path).to_owned()).or_insert(OptionValue::InCache);
            } else {
                tensorrt.remove(*path);
            }
        }
        for (provider, values) in &mut self.0 {
            let place = folder.map(|folder| folder.join(provider.short_name()).display().to_string());
            match place {
                Some(place) => {
                    for value in values.values_mut().filter(|value| **value == OptionValue::InCache) {
                        *value = OptionValue::Value(place.clone());
                    }
                }
                None => values.retain(|_, value| *value != OptionValue::InCache),
            }
            if *provider == ExecutionProvider::TensorRt {
                for (switch, path) in tables::TENSORRT_CACHES {
                    if !values.contains_key(*path) {
                        values.insert((*switch).to_owned(), OptionValue::Value("0".to_owned()));
                    }
                }
            }
        }
    }

    /// Names and values for the library of `provider`.
    pub fn values(&self, provider: ExecutionProvider) -> impl Iterator<Item = (&str, &str)> {
        self.0.get(&provider).into_iter().flatten().filter_map(|(name, values)| match values {
            OptionValue::Value(value) => Some((name.as_str(), value.as_str())),
            OptionValue::InCache => None,
        })
    }

    /// The same without what gpux adds of itself: what may be to blame for a fault.
    pub fn user_values(&self, provider: ExecutionProvider) -> impl Iterator<Item = (&str, &str)> {
        let added = |name: &str| tables::TENSORRT_CACHES.iter().any(|(switch, path)| name == *switch || name == *path);
        self.values(provider).filter(move |(name, _)| !added(name))
    }

    /// The cache folders of `provider`.
    pub fn folders(&self, provider: ExecutionProvider) -> impl Iterator<Item = &Path> {
        let is_folder = move |name: &str| find(provider, name).is_some_and(|option| option.kind == OptionKind::Folder);
        self.values(provider).filter(move |(name, _)| is_folder(name)).map(|(_, value)| Path::new(value))
    }

    /// Whether nothing is set for `provider`.
    pub fn is_empty(&self, provider: ExecutionProvider) -> bool {
        self.values(provider).next().is_none()
    }
}

/// `NAME.OPTION` of a plug-in, whose options only its maker knows and only the operator sets.
fn plugin_option(name: &str, source: OptionSource) -> Option<(ExecutionProvider, &str)> {
    let (plugin, option) = name.split_once('.').filter(|_| source == OptionSource::Operator)?;
    match plugin.parse() {
        Ok(plugin @ ExecutionProvider::Plugin(_)) => Some((plugin, option)),
        _ => None,
    }
}

/// The option of `provider` with this name.
fn find(provider: ExecutionProvider, name: &str) -> Option<&'static ProviderOption> {
    options_of(provider).iter().find(|option| option.name == name || option.aliases.contains(&name))
}

/// The fault of a name that none of these providers has.
fn unknown(of: &[ExecutionProvider], name: &str) -> OptionError {
    let meant = of.first().filter(|_| of.len() < ExecutionProvider::ALL.len());
    let message = match meant {
        Some(provider) => format!("`{provider}` has no option `{name}`"),
        None => format!("no execution provider has an option `{name}`"),
    };
    let names: Vec<_> = of.iter().flat_map(|provider| options_of(*provider)).map(|option| option.name).collect();
    if let Some(near) = gpux_core::closest(name, names.iter().copied()) {
        return OptionError::name(message, format!("did you mean `{near}`?"));
    }
    let elsewhere = ExecutionProvider::ALL.into_iter().find(|provider| find(*provider, name).is_some());
    let hint = match (elsewhere, meant) {
        (Some(elsewhere), _) => format!("it is one of `{elsewhere}`"),
        (None, Some(_)) if names.is_empty() => "it takes no options".to_owned(),
        (None, Some(provider)) => format!("`gpux engine options {provider}` lists what it has"),
        (None, None) => "`gpux engine options` lists them".to_owned(),
    };
    OptionError::name(message, hint)
}

#[cfg(test)]
mod tests;
