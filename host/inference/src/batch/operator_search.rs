//! Finds the first operator of a graph whose results in a batch are not those of its requests alone.

use super::super::sessions::{ModelInputs, SessionSet};
use super::super::tensor_comparison::TensorDifference;
use super::rules::BatchRules;
use super::shape_ladder::ShapeLadder;
use gpux_core::{ElementType, Tensor};

/// The operator and its node's name, for people. `None` where no value of the graph differs once all are outputs, as
/// operators are then not fused, or the model cannot be looked into.
pub(super) fn first_different_operator(
    sessions: &SessionSet,
    rules: &BatchRules,
    requests: &[ModelInputs],
) -> Option<String> {
    let (variant, nodes) = sessions.file().with_all_outputs()?;
    let mut session = sessions.load_variant(&variant).ok()?;
    let mut run = |inputs: &ModelInputs| {
        let views: Vec<_> = inputs.iter().map(|(index, tensor)| (*index, tensor)).collect();
        session.run(&views, None).ok()
    };
    let alone = requests.iter().map(&mut run).collect::<Option<Vec<_>>>()?;
    let joined = rules.join(&requests.iter().collect::<Vec<_>>(), &ShapeLadder::default()).ok()?;
    let together = run(&joined.inputs)?;
    let names: Vec<_> = variant.info().outputs.iter().map(|output| output.name.as_str()).collect();
    let rows: Vec<_> = requests.iter().filter_map(|inputs| inputs.first()?.1.shape().first().copied()).collect();
    let different = nodes.iter().find(|node| {
        let places = node.outputs.iter().filter_map(|name| names.iter().position(|known| known == name));
        places.into_iter().any(|place| {
            let alone: Vec<_> = alone.iter().filter_map(|outputs| outputs.get(place)).collect();
            together.get(place).is_some_and(|together| differs(&alone, together, &rows))
        })
    })?;
    let name = if different.name.is_empty() { String::new() } else { format!(" (node `{}`)", different.name) };
    Some(format!("`{}`{name}", different.op_type))
}

/// Whether the rows of a value are known to differ: each request's lie behind those of the one before it, and within
/// the same axes. Whole numbers may be shapes, which differ without harm.
fn differs(alone: &[&Tensor], together: &Tensor, rows: &[usize]) -> bool {
    let compared =
        together.element().is_float() || matches!(together.element(), ElementType::Uint8 | ElementType::Int8);
    let total: usize = rows.iter().sum();
    let mut start = 0;
    for (alone, rows) in alone.iter().zip(rows) {
        let is_rows = |first: &&usize| compared && *rows > 0 && first.is_multiple_of(*rows);
        let Some(first) = alone.shape().first().filter(is_rows) else { return false };
        let each = first / rows;
        let fits = alone.rank() == together.rank()
            && together.shape()[0] == each * total
            && alone.shape().iter().zip(together.shape()).all(|(alone, together)| alone <= together);
        if !fits {
            return false;
        }
        let strides = together.strides();
        let axes: Vec<_> = alone.shape().iter().copied().zip(strides.iter().copied()).collect();
        let part = together.pick(start * each * strides[0].unsigned_abs(), &axes);
        if part.is_ok_and(|part| !TensorDifference::between(alone, &part).same_bits) {
            return true;
        }
        start += rows;
    }
    false
}
