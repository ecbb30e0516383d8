//! Why the embedded engine cannot load a model.

use std::collections::BTreeMap;

use tract_onnx::prelude::TractError;

use gpux_core::catch_panic::shorten;

/// The cause of a failed load.
#[derive(Debug)]
pub(super) enum LoadError {
    /// the model is at fault
    Invalid(String),
    /// the engine is not known to do this right
    Missing(String),
    /// tract fails
    Beyond(TractError),
}

impl From<TractError> for LoadError {
    fn from(error: TractError) -> Self {
        Self::Beyond(error)
    }
}

/// The operator and the node, if tract names them, and the cause.
pub(super) fn reason(
    error: &TractError,
    operators: &BTreeMap<String, usize>,
    nodes: &BTreeMap<String, String>,
) -> String {
    let cause = error.root_cause().to_string();
    let place = error.chain().find_map(|context| place(&context.to_string(), operators, nodes));
    shorten(&place.map_or(cause.clone(), |place| format!("{place}: {cause}")))
}

/// Reads the two forms in which tract names a node: `node #2 "name" Operator` and
/// `node name (Operator)`.
fn place(context: &str, operators: &BTreeMap<String, usize>, nodes: &BTreeMap<String, String>) -> Option<String> {
    let (_, rest) = context.split_once("node ")?;
    let (name, operator) = if rest.starts_with('#') {
        let (_, rest) = rest.split_once('"')?;
        let (name, rest) = rest.split_once("\" ")?;
        (name, rest.split([' ', ':', '.']).next()?)
    } else {
        let (name, rest) = rest.split_once(" (")?;
        (name, rest.split(')').next()?)
    };
    // Some of tract's names for operators are its own, and some of those for nodes have an ending.
    let whole = || name.split('.').next().and_then(|start| nodes.get(start));
    let operator = nodes.get(name).or_else(whole).map_or(operator, String::as_str);
    let operator = operators.contains_key(operator).then(|| format!("operator `{operator}`"));
    let node = (!name.trim().is_empty()).then(|| format!("node `{}`", name.trim()));
    match (operator, node) {
        (Some(operator), Some(node)) => Some(format!("{operator} of {node}")),
        (operator, node) => operator.or(node),
    }
}

#[cfg(test)]
mod tests {
    use tract_onnx::tract_hir::internal::anyhow;

    use super::*;

    #[test]
    fn keeps_node_and_cause() {
        let operators = BTreeMap::from([("Conv".to_owned(), 1), ("MatMul".to_owned(), 1)]);
        let nodes = BTreeMap::from([("mm".to_owned(), "MatMul".to_owned())]);
        let told = |context: &'static str| reason(&anyhow!("it is odd").context(context), &operators, &nodes);
        assert_eq!(told("Building node  (Conv)"), "operator `Conv`: it is odd");
        assert_eq!(told("Building node c1 (Conv)"), "operator `Conv` of node `c1`: it is odd");
        assert_eq!(told("Failed analyse for node #2 \"x\" MatMulInference"), "node `x`: it is odd");
        assert_eq!(
            told("Failed analyse for node #2 \"mm.cast\" Cast"),
            "operator `MatMul` of node `mm.cast`: it is odd"
        );
        assert_eq!(
            told("Translating node #2 \"mm\" MatMul ToTypedTranslator"),
            "operator `MatMul` of node `mm`: it is odd"
        );
        assert_eq!(told("node #"), "it is odd");
    }
}
