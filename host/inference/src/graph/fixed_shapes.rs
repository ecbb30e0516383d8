//! Models whose open dimensions are made fixed.

use std::collections::BTreeMap;

use prost::Message as _;
use prost::encoding::{self, WireType};

use super::info::{InputSpec, ModelInfo};
use super::proto::{Dimension, DimensionValue, Shape, TypeValue, ValueInfo};
use super::rewrite::Fields;
use super::types::{self, OnnxType};
use gpux_core::Dim;

/// The largest size of a dimension: ONNX Runtime counts some with 32 bits.
const LARGEST: usize = i32::MAX as usize;

/// Fields of `ModelProto` and `GraphProto`.
mod field {
    pub(super) const GRAPH: u32 = 7;
    pub(super) const INPUT: u32 = 11;
    pub(super) const OUTPUT: u32 = 12;
    pub(super) const VALUE_INFO: u32 = 13;
}

/// Sizes for dimensions that a model leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedShapes {
    /// of dimensions that have a name, everywhere
    dimension_name: BTreeMap<String, usize>,
    /// of those without: by input and axis
    unnamed: BTreeMap<(String, usize), usize>,
    /// of inputs whose very rank is open
    whole: BTreeMap<String, Vec<usize>>,
}

/// Why a model cannot have these shapes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// it has no such input
    #[error("the model has no input `{name}`; it has {known}")]
    Input {
        /// what was asked for
        name: String,
        /// what there is
        known: String,
    },
    /// it has no such dimension
    #[error("the model has no open dimension called `{name}`; it has {known}")]
    Dimension {
        /// what was asked for
        name: String,
        /// what there is
        known: String,
    },
    /// the input has another number of axes
    #[error("the input `{name}` has {axes} axes ({shape}), and {given} sizes are given")]
    Rank {
        /// the input
        name: String,
        /// how many it has
        axes: usize,
        /// as the model declares it
        shape: String,
        /// how many sizes
        given: usize,
    },
    /// the dimension is fixed already, or was given another size
    #[error("axis {axis} of the input `{name}` is {known}, not {given}")]
    Other {
        /// the input
        name: String,
        /// from 0
        axis: usize,
        /// its size
        known: usize,
        /// the size given
        given: usize,
    },
    /// no dimension can have this size
    #[error("a dimension is 1 to {LARGEST}, not {0}")]
    Size(usize),
    /// nothing is left to do
    #[error("the model has all of these sizes already: nothing is changed")]
    Nothing,
    /// the file cannot be taken apart
    #[error("the model's file cannot be changed")]
    File,
}

impl FixedShapes {
    /// Whether nothing is fixed.
    pub fn is_empty(&self) -> bool {
        self.dimension_name.is_empty() && self.unnamed.is_empty() && self.whole.is_empty()
    }

    /// Gives the dimension `name` a size, wherever it stands.
    pub fn fix(&mut self, info: &ModelInfo, name: &str, size: usize) -> Result<(), ShapeError> {
        check_size(size)?;
        let ports = info.inputs.iter().map(|input| &input.shape).chain(info.outputs.iter().map(|output| &output.shape));
        let names: Vec<_> = ports.flatten().flatten().filter_map(dimension_name).collect();
        if names.contains(&name) {
            self.dimension_name.insert(name.to_owned(), size);
            return Ok(());
        }
        Err(ShapeError::Dimension { name: name.to_owned(), known: join_names(names.into_iter()) })
    }

    /// Sets the shape of an input; `None` keeps an axis.
    pub fn fix_input(&mut self, info: &ModelInfo, name: &str, sizes: &[Option<usize>]) -> Result<(), ShapeError> {
        sizes.iter().flatten().try_for_each(|size| check_size(*size))?;
        let InputSpec { shape, .. } = info.inputs.iter().find(|input| input.name == name).ok_or_else(|| {
            ShapeError::Input { name: name.to_owned(), known: join_names(info.inputs.iter().map(|input| &*input.name)) }
        })?;
        let Some(shape) = shape else {
            let whole: Option<Vec<_>> = sizes.iter().copied().collect();
            self.whole.insert(name.to_owned(), whole.ok_or(ShapeError::Size(0))?);
            return Ok(());
        };
        if shape.len() != sizes.len() {
            let shown: Vec<_> = shape.iter().map(ToString::to_string).collect();
            let (name, axes, given) = (name.to_owned(), shape.len(), sizes.len());
            return Err(ShapeError::Rank { name, axes, shape: shown.join(","), given });
        }
        for (axis, (dim, size)) in shape.iter().zip(sizes).enumerate() {
            let Some(given) = *size else { continue };
            let known = match dim {
                Dim::Fixed(size) => *size,
                Dim::Named(name) => *self.dimension_name.entry(name.clone()).or_insert(given),
                Dim::Dynamic => *self.unnamed.entry((name.to_owned(), axis)).or_insert(given),
            };
            if known != given {
                return Err(ShapeError::Other { name: name.to_owned(), axis, known, given });
            }
        }
        Ok(())
    }

    /// The shape of an input with these sizes in it.
    fn apply_to_input(&self, input: &InputSpec) -> Option<Vec<Dim>> {
        let Some(shape) = &input.shape else {
            return Some(self.whole.get(&input.name)?.iter().copied().map(Dim::Fixed).collect());
        };
        let fixed = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Named(name) => self.dimension_name.get(name).copied().map_or_else(|| dim.clone(), Dim::Fixed),
            Dim::Dynamic => self.unnamed.get(&(input.name.clone(), axis)).copied().map_or(Dim::Dynamic, Dim::Fixed),
            Dim::Fixed(_) => dim.clone(),
        };
        Some(shape.iter().enumerate().map(fixed).collect())
    }

    /// The model's description with these sizes in its inputs.
    #[must_use]
    pub fn apply_to_info(&self, info: &ModelInfo) -> ModelInfo {
        let mut info = info.clone();
        for input in &mut info.inputs {
            input.shape = self.apply_to_input(input);
            if let Some(OnnxType::Tensor { kind, .. }) = &mut input.value {
                kind.shape.clone_from(&input.shape);
            }
        }
        info
    }

    /// The bytes of the model with these sizes in its inputs, outputs and the recorded shapes of values in
    /// between. Weights in other files stay there.
    pub fn apply(&self, model: &[u8]) -> Result<Vec<u8>, ShapeError> {
        let mut changed = 0;
        let mut rewritten = Vec::with_capacity(model.len() + 1024);
        for part in Fields(model) {
            let (tag, whole, payload) = part.ok_or(ShapeError::File)?;
            if tag != field::GRAPH {
                rewritten.extend_from_slice(whole);
                continue;
            }
            let mut graph = Vec::with_capacity(payload.len() + 1024);
            for part in Fields(payload) {
                let (tag, whole, payload) = part.ok_or(ShapeError::File)?;
                if !matches!(tag, field::INPUT | field::OUTPUT | field::VALUE_INFO) {
                    graph.extend_from_slice(whole);
                    continue;
                }
                let mut value = ValueInfo::decode(payload).map_err(|_| ShapeError::File)?;
                if self.apply_to_value(&mut value, tag == field::INPUT) {
                    changed += 1;
                    encoding::message::encode(tag, &value, &mut graph);
                } else {
                    graph.extend_from_slice(whole);
                }
            }
            encoding::encode_key(field::GRAPH, WireType::LengthDelimited, &mut rewritten);
            encoding::encode_varint(graph.len() as u64, &mut rewritten);
            rewritten.extend_from_slice(&graph);
        }
        if changed == 0 { Err(ShapeError::Nothing) } else { Ok(rewritten) }
    }

    /// Whether anything about the value was changed.
    fn apply_to_value(&self, value: &mut ValueInfo, is_input: bool) -> bool {
        let Some(TypeValue::Tensor(tensor)) = value.kind.as_mut().and_then(|kind| kind.value.as_mut()) else {
            return false;
        };
        let sized = |size: usize| Dimension { value: Some(DimensionValue::Size(size as i64)) };
        if is_input && let Some(sizes) = self.whole.get(&value.name) {
            tensor.shape = Some(Shape { dims: sizes.iter().copied().map(sized).collect() });
            return true;
        }
        let mut changed = false;
        let dims = tensor.shape.iter_mut().flat_map(|shape| &mut shape.dims);
        for (axis, dim) in dims.enumerate() {
            let size = match types::dim(dim) {
                Dim::Named(name) => self.dimension_name.get(&name),
                Dim::Dynamic if is_input => self.unnamed.get(&(value.name.clone(), axis)),
                Dim::Fixed(_) | Dim::Dynamic => None,
            };
            if let Some(size) = size {
                *dim = sized(*size);
                changed = true;
            }
        }
        changed
    }
}

fn check_size(size: usize) -> Result<(), ShapeError> {
    if (1..=LARGEST).contains(&size) { Ok(()) } else { Err(ShapeError::Size(size)) }
}

fn dimension_name(dim: &Dim) -> Option<&str> {
    if let Dim::Named(name) = dim { Some(name) } else { None }
}

/// Names for people, each once.
fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut shown: Vec<String> = Vec::new();
    for name in names.map(|name| format!("`{name}`")) {
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{model, path};

    fn fixed(name: &str, fixed: &FixedShapes) -> ModelInfo {
        let bytes = fixed.apply(&std::fs::read(path(&format!("{name}.onnx"))).unwrap()).unwrap();
        let path = path(&format!("{name}.onnx"));
        super::super::inspect(&path, std::io::Cursor::new(bytes), super::super::WeightLinks::Inside).unwrap()
    }

    #[test]
    fn fixes_named_dimensions_everywhere() {
        let file = model("embedding");
        let mut shapes = FixedShapes::default();
        shapes.fix_input(file.info(), "input_ids", &[Some(2), None]).unwrap();
        let info = fixed("embedding", &shapes);
        let shape =
            |dims: &Option<Vec<Dim>>| dims.iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(",");
        assert!(info.inputs.iter().all(|input| shape(&input.shape) == "2,length"));
        let outputs: Vec<_> = info.outputs.iter().map(|output| shape(&output.shape)).collect();
        assert_eq!(outputs, ["2,length,4", "2,4"]);
        assert_eq!(shapes.apply_to_info(file.info()).inputs, info.inputs);
        shapes.fix(file.info(), "length", 7).unwrap();
        assert_eq!(shape(&fixed("embedding", &shapes).outputs[0].shape), "2,7,4");
    }

    #[test]
    fn fixes_unnamed_axes_separately() {
        let file = model("default");
        let mut shapes = FixedShapes::default();
        shapes.fix_input(file.info(), "x", &[Some(5), Some(2)]).unwrap();
        let info = fixed("default", &shapes);
        assert_eq!(info.inputs[0].shape, Some(vec![Dim::Fixed(5), Dim::Fixed(2)]));
        assert_eq!(info.outputs[0].shape, Some(vec![Dim::Dynamic, Dim::Fixed(2)]), "nobody says that it is the same");
        let fixed_already = model("adds");
        let mut none = FixedShapes::default();
        none.fix_input(fixed_already.info(), "x", &[Some(1), Some(16)]).unwrap();
        let bytes = std::fs::read(fixed_already.path()).unwrap();
        assert_eq!(none.apply(&bytes), Err(ShapeError::Nothing));
        assert_eq!(shapes.apply(b"\x3a\x7f"), Err(ShapeError::File));
    }

    #[test]
    fn rejects_shapes_that_do_not_fit() {
        let file = model("embedding");
        let told = |name: &str, sizes: &[Option<usize>]| {
            FixedShapes::default().fix_input(file.info(), name, sizes).unwrap_err().to_string()
        };
        assert_eq!(told("x", &[]), "the model has no input `x`; it has `input_ids`, `attention_mask`");
        assert_eq!(
            told("input_ids", &[Some(1)]),
            "the input `input_ids` has 2 axes (batch,length), and 1 sizes are given"
        );
        assert_eq!(told("input_ids", &[Some(0), None]), "a dimension is 1 to 2147483647, not 0");
        let mut shapes = FixedShapes::default();
        shapes.fix_input(file.info(), "input_ids", &[Some(1), Some(8)]).unwrap();
        let other = shapes.fix_input(file.info(), "attention_mask", &[Some(1), Some(9)]).unwrap_err();
        assert_eq!(other.to_string(), "axis 1 of the input `attention_mask` is 8, not 9");
        let unknown = shapes.fix(file.info(), "time", 1).unwrap_err();
        assert_eq!(unknown.to_string(), "the model has no open dimension called `time`; it has `batch`, `length`");
    }
}
