//! Resource limits of a component.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use gpux_core::{JsonTreeError, LimitExceeded, TimeSpan};

/// What one component step may use. A field's name is its key under `limits:` in gpux.yml, where a
/// step may lower any of them below the operator's ceiling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Time for one request, spent in the component or in built-in steps that it calls: a step
    /// that hangs must not hold its worker. Running models does not count. Default: 1 s.
    #[serde(with = "written")]
    pub time: Duration,
    /// Time for `describe` and `configure` when the step is loaded, which may build tables or
    /// start an interpreter. Default: 10 s.
    #[serde(with = "written")]
    pub setup_time: Duration,
    /// Bytes of all its memories together and of the tensors that it made on the host, or had a
    /// built-in step or a model make, so that one step cannot starve the machine. Default: 256 MiB.
    pub memory: usize,
    /// Elements of all its tables together, which live outside its memory. Default: 100 000.
    pub table_elements: usize,
    /// Linear memories; each reserves address space. Default: 4.
    pub memories: usize,
    /// Tables; each reserves address space. Default: 32.
    pub tables: usize,
    /// Core instances inside the component; a component from Python has dozens. Default: 100.
    pub instances: usize,
    /// Tensors that it holds at a time; each costs the host a little even when empty. Default: 1024.
    pub handles: usize,
    /// Bytes of all the values that go into one request: a component copies what it looks at.
    /// Default: 64 MiB.
    pub input: usize,
    /// Bytes of all the values that leave it at once: the result of a request, and what one call
    /// hands to a built-in step or a model, where a tensor counts each time it is named. Also the
    /// bytes that one request writes to files. Default: 64 MiB.
    pub result: usize,
    /// Bytes that one call copies between the component and its host: text, bytes, JSON, a
    /// tensor's data, read or written at once. While it lasts the host holds them a second time,
    /// beyond `memory`. Tensors passed by their handles cost nothing. Default: 16 MiB.
    pub copy: usize,
    /// Built-in steps and models that it runs during one request; each may take longer than
    /// anything the component does itself. Default: 10 000.
    pub calls: usize,
    /// Values in one call, and ports of the step. Default: 64.
    pub values: usize,
    /// Bytes of the name of a port or a dimension. Default: 128.
    pub name_length: usize,
    /// Levels of nesting of a JSON value; at most 120. Default: 64.
    pub json_depth: usize,
    /// Bytes of log lines kept from one request; the newest stay. Default: 16 KiB.
    pub log: usize,
    /// Bytes of the component itself, since compiling takes time and memory in proportion.
    /// Default: 64 MiB.
    pub component_size: usize,
    /// Processor time for compiling the component and making its snapshot when it is loaded, in a
    /// process of its own: a small file can take long. Default: 60 s.
    #[serde(with = "written")]
    pub compile_time: Duration,
    /// Memory of that process, in bytes. Default: 2 GiB.
    pub compile_memory: usize,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(1),
            setup_time: Duration::from_secs(10),
            memory: 256 * MIB,
            table_elements: 100_000,
            memories: 4,
            tables: 32,
            instances: 100,
            handles: 1024,
            input: 64 * MIB,
            result: 64 * MIB,
            copy: 16 * MIB,
            calls: 10_000,
            values: 64,
            name_length: 128,
            json_depth: 64,
            log: 16 * KIB,
            component_size: 64 * MIB,
            compile_time: Duration::from_mins(1),
            compile_memory: 2048 * MIB,
        }
    }
}

/// Calls a macro with the name of every field of [`Limits`].
#[macro_export]
macro_rules! for_each_limit {
    ($call:ident) => {
        $call! {
            time setup_time memory table_elements memories tables instances handles input result copy calls values
            name_length json_depth log component_size compile_time compile_memory
        }
    };
}

impl Limits {
    /// These limits, each lowered to the operator's `ceiling` where it is above.
    #[must_use]
    pub fn capped(&self, ceiling: &Self) -> Self {
        macro_rules! lesser {
            ($($name:ident)*) => { Self { $($name: self.$name.min(ceiling.$name)),* } };
        }
        for_each_limit!(lesser)
    }
}

impl Limits {
    /// Bytes that may cross in one call, and the name of the limit that says so.
    pub(super) fn copy_limit(&self) -> (&'static str, usize) {
        if self.result < self.copy { ("result", self.result) } else { ("copy", self.copy) }
    }

    /// More would cross in one call than may.
    pub(super) fn copy_exceeded(&self) -> LimitExceeded {
        let (name, size) = self.copy_limit();
        exceeded(name, bytes(size))
    }
}

/// A duration as gpux.yml writes it: `50ms`, `1s`.
mod written {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, TimeSpan};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        TimeSpan(*duration).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        TimeSpan::deserialize(deserializer).map(|span| span.0)
    }
}

/// Why a text is no JSON value, for the guest's author.
pub(super) fn json_error(error: &JsonTreeError) -> String {
    match error {
        JsonTreeError::TooDeep(_) => format!("{error} (limit `json_depth`)"),
        _ => error.to_string(),
    }
}

/// The limit `name`, of this `value`, was reached.
pub(super) fn exceeded(name: &'static str, value: String) -> LimitExceeded {
    LimitExceeded {
        limit: name.into(),
        value,
        hint: Some(
            format!("raise it with `limits: {{ {name}: … }}` on this step, and its ceiling with `--limit {name}=…`")
                .into(),
        ),
    }
}

/// A size for people: `64 MiB`, `16 KiB`, `100 bytes`.
pub(super) fn bytes(size: usize) -> String {
    match size {
        size if size >= MIB && size.is_multiple_of(MIB) => format!("{} MiB", size / MIB),
        size if size >= KIB && size.is_multiple_of(KIB) => format!("{} KiB", size / KIB),
        size => format!("{size} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_can_only_be_lowered() {
        let ceiling = Limits { memory: MIB, ..Limits::default() };
        let asked = Limits { memory: 2 * MIB, time: Duration::from_millis(5), ..Limits::default() };
        let capped = asked.capped(&ceiling);
        assert_eq!((capped.memory, capped.time), (MIB, Duration::from_millis(5)));
        let json = serde_json::to_value(&capped).unwrap();
        assert_eq!(json["time"], "5ms");
        assert_eq!(serde_json::from_value::<Limits>(json).unwrap(), capped);
    }

    #[test]
    fn limit_errors_name_limit_value_and_remedy() {
        assert_eq!(
            exceeded("memory", bytes(64 * MIB)).to_string(),
            "it reached its limit of 64 MiB (memory); raise it with `limits: { memory: … }` on this step, and \
             its ceiling with `--limit memory=…`"
        );
    }
}
