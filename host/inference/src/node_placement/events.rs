//! Parses the profile that ONNX Runtime writes: a list of events in JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use super::NodeExecution;

/// How the file's name begins.
pub(super) const PREFIX: &str = "nodes";
/// The longest file that is read, in bytes: some hundred thousand executions of nodes.
const LARGEST: u64 = 256 << 20;
/// The suffix of a node's name in the event of its kernel.
const KERNEL: &str = "_kernel_time";

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    op_name: String,
    #[serde(default)]
    provider: String,
    #[serde(default)]
    node_index: String,
    #[serde(default)]
    input_type_shape: Vec<BTreeMap<String, Vec<i64>>>,
    #[serde(default)]
    output_type_shape: Vec<BTreeMap<String, Vec<i64>>>,
}

/// The nodes in the file that the child left in `folder`.
pub(super) fn read(folder: &Path) -> Result<Vec<NodeExecution>, String> {
    let text = |error: std::io::Error| error.to_string();
    let entries = std::fs::read_dir(folder).map_err(text)?.flatten().map(|entry| entry.path());
    let mut found =
        entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)));
    let path = found.next().ok_or("ONNX Runtime has written nothing about the run")?;
    let mut bytes = Vec::new();
    File::open(path).map_err(text)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(text)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("what ONNX Runtime has written about the run is larger than {} MiB", LARGEST >> 20));
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Vec<NodeExecution>, String> {
    let events: Vec<Event> =
        serde_json::from_slice(bytes).map_err(|error| format!("what ONNX Runtime has written is not read: {error}"))?;
    let shape = |shapes: Vec<BTreeMap<String, Vec<i64>>>| {
        let sizes = |shape: Vec<i64>| shape.into_iter().map(|size| u64::try_from(size).unwrap_or(0)).collect();
        shapes.into_iter().flat_map(BTreeMap::into_values).map(sizes).collect()
    };
    let ran = |event: Event| {
        let name = event.name.strip_suffix(KERNEL).filter(|_| event.cat == "Node")?;
        let Arguments { op_name, provider, node_index, input_type_shape, output_type_shape } = event.args;
        Some(NodeExecution {
            node: format!("{node_index} {name}"),
            operator: op_name,
            provider,
            inputs: shape(input_type_shape),
            outputs: shape(output_type_shape),
        })
    };
    Ok(events.into_iter().filter_map(ran).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_events() {
        let text = r#"[
            {"cat": "Session", "name": "model_run", "args": {}},
            {"cat": "Node", "name": "conv1_fence_before", "args": {"op_name": "Conv"}},
            {"cat": "Node", "name": "conv1_kernel_time", "dur": 173, "args": {
                "op_name": "Conv", "provider": "CPUExecutionProvider", "node_index": "0", "output_size": "4096",
                "input_type_shape": [{"float": [1, 1, 8, 8]}, {"float": [16, 1, 3, 3]}],
                "output_type_shape": [{"float": [1, 16, 8, 8]}]}}
        ]"#;
        let expected = NodeExecution {
            node: "0 conv1".to_owned(),
            operator: "Conv".to_owned(),
            provider: "CPUExecutionProvider".to_owned(),
            inputs: vec![vec![1, 1, 8, 8], vec![16, 1, 3, 3]],
            outputs: vec![vec![1, 16, 8, 8]],
        };
        assert_eq!(parse(text.as_bytes()).unwrap(), [expected]);
        assert!(parse(b"[{").is_err());
    }
}
