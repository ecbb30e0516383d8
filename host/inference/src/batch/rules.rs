//! Which requests may share a run, and how: derived from the first axis in a model's signature
//! and from the axis of text lengths.

use smallvec::SmallVec;

use super::super::sessions::ModelInputs;
use gpux_core::{Dim, Kind, Port, Signature, Tensor, TensorError};

use super::concatenation;
use super::shape_ladder::ShapeLadder;

/// Inputs of a text model that mean nothing where the attention mask is 0. They are padded with 0.
const MASKED: [&str; 2] = ["input_ids", "token_type_ids"];
/// The input that says which tokens count: 1, or 0 for padding.
const MASK: &str = "attention_mask";

/// The key of compatible requests: element type and shape of each input, without the first axis and
/// the lengths that may be padded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchKey(SmallVec<[usize; 16]>);

/// The properties of a request that batching depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestProfile {
    pub(super) key: BatchKey,
    pub(super) rows: usize,
    /// of a text that may be padded
    pub(super) length: Option<usize>,
    /// how large one more of that length would make each row
    pub(super) bytes_per_token: usize,
}

/// The batching rules of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BatchRules {
    /// axes that have the length of the text, for models whose texts may be padded
    length: Option<SequenceAxes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SequenceAxes {
    /// the inputs whose axis 1 it is
    inputs: Vec<usize>,
    /// for each output, the axis that has it
    outputs: Vec<Option<usize>>,
}

/// A batch's concatenated inputs, and the sizes to split its results.
pub(super) struct JoinedBatch {
    pub(super) inputs: ModelInputs,
    /// rows of the run, of which the last may belong to no request
    pub(super) rows: usize,
    /// the length that texts are padded to
    pub(super) length: Option<usize>,
    /// rows and length of each request
    parts: Vec<(usize, Option<usize>)>,
}

impl BatchRules {
    /// The rules of a model; the reason why its requests must run one at a time otherwise.
    pub(super) fn from_signature(signature: &Signature, pad: bool) -> Result<Self, String> {
        let mut batch: Option<&str> = None;
        let ports = signature.inputs.iter().map(|port| ("input", port));
        for (what, port) in ports.chain(signature.outputs.iter().map(|port| ("output", port))) {
            match dims(port).map(<[Dim]>::first) {
                Some(Some(Dim::Dynamic)) | None => {}
                Some(Some(Dim::Named(name))) => {
                    let batch = *batch.get_or_insert(name);
                    if batch != name {
                        return Err(format!("the first axis of {what} `{}` is `{name}`, not `{batch}`", port.name));
                    }
                }
                Some(Some(Dim::Fixed(size))) => {
                    return Err(format!("the first axis of {what} `{}` is always {size}", port.name));
                }
                Some(None) => return Err(format!("{what} `{}` has no axes", port.name)),
            }
        }
        if signature.inputs.is_empty() {
            return Err("it has no inputs".to_owned());
        }
        Ok(Self { length: pad.then(|| SequenceAxes::from_signature(signature)).flatten() })
    }

    /// Whether texts of different lengths may share a run.
    pub(super) const fn pads(&self) -> bool {
        self.length.is_some()
    }

    /// The same rules for texts of one length only.
    pub(super) const fn unpadded() -> Self {
        Self { length: None }
    }

    /// The profile of a request; `None` for a request that is never batched.
    pub(super) fn profile(&self, inputs: &ModelInputs) -> Option<RequestProfile> {
        let rows = *inputs.first()?.1.shape().first()?;
        let (mut key, mut length, mut bytes_per_token) = (SmallVec::new(), None, 0);
        for (index, tensor) in inputs {
            let (first, others) = tensor.shape().split_first()?;
            if *first != rows || rows == 0 {
                return None;
            }
            key.extend([*index, tensor.element() as usize, others.len()]);
            if !self.is_long(*index) {
                key.extend_from_slice(others);
                continue;
            }
            let long = *others.first()?;
            if *length.get_or_insert(long) != long {
                return None;
            }
            bytes_per_token += tensor.byte_len().checked_div(rows * long).unwrap_or(1);
        }
        Some(RequestProfile { key: BatchKey(key), rows, length, bytes_per_token })
    }

    fn is_long(&self, index: usize) -> bool {
        self.length.as_ref().is_some_and(|length| length.inputs.contains(&index))
    }

    /// The length of a text that may be padded.
    pub(super) fn length(&self, inputs: &ModelInputs) -> Option<usize> {
        let (_, tensor) = inputs.iter().find(|(index, _)| self.is_long(*index))?;
        tensor.shape().get(1).copied()
    }

    /// One run of several requests whose keys are equal. What `shapes` adds are zeros behind texts, and the last row
    /// again.
    pub(super) fn join(&self, requests: &[&ModelInputs], shapes: &ShapeLadder) -> Result<JoinedBatch, TensorError> {
        let parts: Vec<_> = requests
            .iter()
            .map(|inputs| (inputs.first().map_or(0, |(_, tensor)| tensor.shape()[0]), self.length(inputs)))
            .collect();
        let length = parts.iter().filter_map(|(_, length)| *length).max().map(|longest| shapes.length(longest));
        let own_rows = parts.iter().map(|(rows, _)| rows).sum();
        let rows = shapes.size(own_rows);
        let input = |(place, (index, _)): (usize, &(usize, Tensor))| {
            let last = &requests[requests.len() - 1][place].1;
            let last_row = || concatenation::slice_rows(last, last.shape()[0] - 1, 1, None);
            let filler = (rows > own_rows).then(last_row).transpose()?;
            let own = requests.iter().map(|inputs| &inputs[place].1);
            let tensors: SmallVec<[&Tensor; 16]> = own.chain(filler.iter().cycle().take(rows - own_rows)).collect();
            let padded = length.filter(|_| self.is_long(*index));
            Ok((*index, concatenation::concat_rows(&tensors, padded)?))
        };
        let inputs = requests[0].iter().enumerate().map(input).collect::<Result<_, TensorError>>()?;
        Ok(JoinedBatch { inputs, rows, length, parts })
    }
}

impl JoinedBatch {
    /// The results of each request, in their order. Fails when an output has not one row for each
    /// row that went in.
    pub(super) fn split(&self, rules: &BatchRules, outputs: &[Tensor]) -> Result<Vec<Vec<Tensor>>, String> {
        let long = |output: usize| rules.length.as_ref().and_then(|length| length.outputs.get(output).copied()?);
        for (index, output) in outputs.iter().enumerate() {
            if output.shape().first() != Some(&self.rows) {
                let shape = output.shape();
                let total = self.rows;
                return Err(format!("{total} rows gave output {index} of shape {shape:?}, not one result a row"));
            }
            if let Some(axis) = long(index)
                && output.shape().get(axis).copied() != self.length
            {
                return Err(format!("output {index} of shape {:?} is not as long as its input", output.shape()));
            }
        }
        let mut start = 0;
        let part = |(rows, length): &(usize, Option<usize>)| {
            let cut = |(index, output): (usize, &Tensor)| {
                let cut = long(index).zip(*length);
                concatenation::slice_rows(output, start, *rows, cut).map_err(|error| error.to_string())
            };
            let part = outputs.iter().enumerate().map(cut).collect();
            start += rows;
            part
        };
        self.parts.iter().map(part).collect()
    }
}

impl SequenceAxes {
    /// Texts may be padded where a mask says so, every input of that length is known to heed it, and
    /// every output says which of its axes have it.
    fn from_signature(signature: &Signature) -> Option<Self> {
        let mask = signature.inputs.iter().find(|port| port.name == MASK)?;
        let [_, Dim::Named(name)] = dims(mask)? else { return None };
        let is_length = |dim: &Dim| matches!(dim, Dim::Named(other) if other == name);
        let mut inputs = Vec::new();
        for (index, port) in signature.inputs.iter().enumerate() {
            let dims = dims(port)?;
            if !dims.iter().any(is_length) {
                continue;
            }
            if dims.len() != 2 || !(MASKED.contains(&port.name.as_str()) || port.name == MASK) {
                return None;
            }
            inputs.push(index);
        }
        let output = |port: &Port| {
            let dims = dims(port)?;
            let open = dims.iter().skip(1).any(|dim| matches!(dim, Dim::Dynamic));
            let mut long = dims.iter().enumerate().filter(|(_, dim)| is_length(dim)).map(|(axis, _)| axis);
            let axis = long.next();
            // More than one axis (attention weights), or one of any size: cannot be cut.
            (!open && long.next().is_none()).then_some(axis)
        };
        Some(Self { inputs, outputs: signature.outputs.iter().map(output).collect::<Option<_>>()? })
    }
}

fn dims(port: &Port) -> Option<&[Dim]> {
    match &port.kind {
        Kind::Tensor(tensor) => tensor.shape.as_deref(),
        _ => None,
    }
}
