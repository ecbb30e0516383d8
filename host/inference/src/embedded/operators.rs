//! The operators that the engine accepts. tract ignores attributes, inputs and element types
//! that it does not know, so each model is checked against a table of forms whose results are known to be right.
//! Other forms are refused when the model is loaded. `tests/onnx/operators.py` compares the table with
//! ONNX Runtime's results.

mod table;

use std::collections::{HashMap, HashSet};

use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, type_proto};

use table::{ALL, AttributeValues, Operator, OutputType, TABLE};

/// A set of ONNX element types: bit `1 << data_type`.
type Elements = u32;

/// Facts about values by name, including those of enclosing graphs.
#[derive(Clone, Default)]
struct Scope<'a> {
    elements: HashMap<&'a str, i32>,
    constants: HashMap<&'a str, &'a TensorProto>,
    /// values that are known when the model is planned
    known: HashSet<&'a str>,
    /// values that a node takes or that a graph gives
    used: HashSet<&'a str>,
}

/// A node that a row of the table is to look at.
struct NodeView<'a> {
    node: &'a NodeProto,
    scope: &'a Scope<'a>,
}

const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT32: i32 = 6;
const INT64: i32 = 7;
const BOOL: i32 = 9;
const DOUBLE: i32 = 11;

/// The names of ONNX's element types, by number.
const NAMES: [&str; 17] = [
    "undefined",
    "float32",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "string",
    "bool",
    "float16",
    "float64",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bfloat16",
];

/// Whether there is such an operator. Those of other domains than ONNX's own have the domain before
/// their name.
pub(super) fn is_known(operator: &str) -> bool {
    let (domain, name) = operator.rsplit_once('.').unwrap_or(("", operator));
    TABLE.iter().any(|row| row.name == name && row.domain == domain)
}

/// Whether the model may be planned for any shape. Fails with the first thing in it that the engine is
/// not known to do right, in words.
pub(super) fn check(model: &ModelProto) -> Result<bool, String> {
    let opset = |domain: &str| {
        let import = model.opset_import.iter().find(|import| plain(&import.domain) == domain);
        import.map_or(1, |import| import.version)
    };
    let opsets = [("", opset("")), ("ai.onnx.ml", opset("ai.onnx.ml"))];
    let mut any_shape = true;
    if let Some(graph) = &model.graph {
        let mut scope = Scope::default();
        note_used(graph, &mut scope.used);
        check_graph(graph, &scope, &opsets, &mut any_shape)?;
    }
    Ok(any_shape)
}

/// ONNX's own domain has two names.
fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Adds the inputs of a graph's nodes and its outputs, including those of subgraphs.
fn note_used<'a>(graph: &'a GraphProto, used: &mut HashSet<&'a str>) {
    used.extend(graph.output.iter().map(|output| output.name.as_str()));
    for node in &graph.node {
        used.extend(node.input.iter().map(String::as_str));
        node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()).for_each(|graph| note_used(graph, used));
    }
}

/// The element types of the graph's outputs.
fn check_graph<'a>(
    graph: &'a GraphProto,
    around: &Scope<'a>,
    opsets: &[(&str, i64); 2],
    any_shape: &mut bool,
) -> Result<Vec<Option<i32>>, String> {
    if !graph.sparse_initializer.is_empty() {
        return Err("sparse weights".to_owned());
    }
    let mut scope = around.clone();
    for port in &graph.input {
        if let Some(type_proto::Value::TensorType(tensor)) = port.r#type.as_ref().and_then(|kind| kind.value.as_ref()) {
            let known = scope.elements.entry(&port.name).or_insert(tensor.elem_type);
            *known = if tensor.elem_type == 0 { *known } else { tensor.elem_type };
        }
    }
    for weight in &graph.initializer {
        check_weight(weight)?;
        scope.elements.insert(&weight.name, weight.data_type);
        scope.constants.insert(&weight.name, weight);
        scope.known.insert(&weight.name);
    }
    for node in &graph.node {
        check_node(node, &mut scope, opsets, any_shape)?;
    }
    Ok(graph.output.iter().map(|output| scope.elements.get(output.name.as_str()).copied()).collect())
}

/// tract reads `uint32` and `uint64` from other fields than ONNX puts them into, and as signed numbers.
fn check_weight(weight: &TensorProto) -> Result<(), String> {
    let bytes = !weight.raw_data.is_empty() || !weight.external_data.is_empty();
    match weight.data_type {
        12 | 13 if !bytes => Err(format!("weights of {} written as numbers", NAMES[weight.data_type as usize])),
        _ => Ok(()),
    }
}

fn check_node<'a>(
    node: &'a NodeProto,
    scope: &mut Scope<'a>,
    opsets: &[(&str, i64); 2],
    any_shape: &mut bool,
) -> Result<(), String> {
    let domain = plain(&node.domain);
    let name = if domain.is_empty() { node.op_type.clone() } else { format!("{domain}.{}", node.op_type) };
    let refuse = |what: String| {
        let of = if node.name.is_empty() { String::new() } else { format!(" (node `{}`)", node.name) };
        Err(format!("operator `{name}`{what}{of}"))
    };

    let Some(row) = TABLE.iter().find(|row| row.name == node.op_type && row.domain == domain) else {
        return refuse(String::new());
    };

    let opset = opsets.iter().find(|(known, _)| *known == domain).map_or(1, |(_, version)| *version);
    if !(row.since..=row.until).contains(&opset) {
        return refuse(format!(" of operator set {opset}"));
    }

    for attribute in &node.attribute {
        if let Some(shown) = fault(row, attribute) {
            return refuse(format!(" with attribute `{}: {shown}`", attribute.name));
        }
    }

    let given = node.input.iter().rposition(|input| !input.is_empty()).map_or(0, |last| last + 1);
    if given > row.inputs || row.without.iter().any(|index| node.input.get(*index).is_some_and(|name| !name.is_empty()))
    {
        let index = row.without.iter().find(|index| **index < given).unwrap_or(&row.inputs);
        return refuse(format!(" with input {index} (`{}`)", node.input[*index]));
    }

    if let Some(index) = node.output.iter().skip(row.outputs).position(|output| !output.is_empty()) {
        return refuse(format!(" with output {}", row.outputs + index));
    }

    let is_known = |name: &String| name.is_empty() || scope.known.contains(name.as_str());
    let variable = row.constants.iter().find(|index| node.input.get(**index).is_some_and(|name| !is_known(name)));
    if let Some(index) = variable {
        return refuse(format!(" with input {index} (`{}`) that is not constant", node.input[*index]));
    }

    let is_computed =
        matches!(row.name, "Shape" | "Size") || !matches!(row.name, "If" | "Scan") && node.input.iter().all(is_known);
    let element = |index: usize| node.input.get(index).and_then(|name| scope.elements.get(name.as_str()).copied());

    for (index, name) in node.input.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let allowed = row.elements.get(index).or(row.elements.last()).copied().unwrap_or(ALL);
        match scope.elements.get(name.as_str()) {
            Some(element) if allowed & (1 << element) != 0 => {}
            Some(element) => {
                return refuse(format!(" on {}", NAMES.get(*element as usize).unwrap_or(&"other elements")));
            }
            // Nothing produces it: tract says so.
            None => {}
        }
    }

    if let Some(check) = row.check {
        match check(&NodeView { node, scope }) {
            Ok(right) => *any_shape &= right,
            Err(reason) => return refuse(format!(" with {reason}")),
        }
    }

    let mut inner = Vec::new();
    for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        let mut around = scope.clone();
        // A body's inputs have the types of the node's inputs.
        for (port, name) in graph.input.iter().zip(&node.input) {
            if let Some(element) = scope.elements.get(name.as_str()) {
                around.elements.insert(&port.name, *element);
            }
        }
        inner = check_graph(graph, &around, opsets, any_shape)?;
    }

    let results: Vec<_> = (0..node.output.len())
        .map(|index| match row.gives.get(index).or(row.gives.last()) {
            Some(OutputType::Input(index)) => element(*index),
            Some(OutputType::InputOr(index, usual)) => element(*index).or(Some(*usual)),
            Some(OutputType::Element(element)) => Some(*element),
            Some(OutputType::Attribute(name, usual)) => {
                attribute(node, name).map(|given| given.i as i32).or(Some(*usual))
            }
            Some(OutputType::AttributeOrInput(name)) => {
                attribute(node, name).map(|given| given.i as i32).or(element(0))
            }
            Some(OutputType::Value) => constant(node),
            Some(OutputType::Graph) => inner.get(index).copied().flatten(),
            None => None,
        })
        .collect();

    for (name, element) in node.output.iter().zip(results) {
        // No operator accepts an unknown type.
        scope.elements.insert(name, element.unwrap_or(0));
        if is_computed {
            scope.known.insert(name);
        }
    }

    if let ("Constant", Some(value)) =
        (node.op_type.as_str(), node.attribute.first().and_then(|given| given.t.as_ref()))
    {
        check_weight(value)?;
        scope.constants.extend(node.output.iter().map(|name| (name.as_str(), value)));
    }
    Ok(())
}

impl NodeView<'_> {
    fn input(&self, index: usize) -> Option<&str> {
        self.node.input.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    fn has(&self, input: usize) -> bool {
        self.input(input).is_some()
    }

    fn element(&self, input: usize) -> Option<i32> {
        self.scope.elements.get(self.input(input)?).copied()
    }

    fn constant(&self, input: usize) -> Option<&TensorProto> {
        self.scope.constants.get(self.input(input)?).copied()
    }

    /// Whether an input is missing, or known when the model is planned.
    fn is_known(&self, input: usize) -> bool {
        self.input(input).is_none_or(|name| self.scope.known.contains(name))
    }

    fn is_used(&self, output: usize) -> bool {
        self.node.output.get(output).is_some_and(|name| !name.is_empty() && self.scope.used.contains(name.as_str()))
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        attribute(self.node, name)
    }

    fn text(&self, name: &str, usual: &str) -> String {
        self.attribute(name).map_or_else(|| usual.to_owned(), |given| String::from_utf8_lossy(&given.s).into_owned())
    }

    /// The whole numbers of an input, if they are part of the model.
    fn ints(&self, input: usize) -> Option<Vec<i64>> {
        let tensor = self.constant(input)?;
        let raw = &tensor.raw_data;
        match tensor.data_type {
            INT64 if raw.is_empty() => Some(tensor.int64_data.clone()),
            INT64 => Some(raw.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
            INT32 if raw.is_empty() => Some(tensor.int32_data.iter().map(|number| i64::from(*number)).collect()),
            INT32 => Some(raw.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect()),
            _ => None,
        }
    }
}

fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

/// The element type of a `Constant` or a `ConstantOfShape`.
fn constant(node: &NodeProto) -> Option<i32> {
    let Some(given) = node.attribute.first() else { return Some(FLOAT) };
    match given.name.as_str() {
        "value" => given.t.as_ref().map(|tensor| tensor.data_type),
        "value_int" | "value_ints" => Some(INT64),
        "value_float" | "value_floats" => Some(FLOAT),
        _ => None,
    }
}

/// The value of an attribute, for people, if the engine does not heed it.
fn fault(row: &Operator, attribute: &AttributeProto) -> Option<String> {
    let text = || String::from_utf8_lossy(&attribute.s).into_owned();
    let number = attribute.i;
    let known = row.attributes.iter().find(|(name, _)| *name == attribute.name).map(|(_, values)| values);
    let heeded = attribute.ref_attr_name.is_empty()
        && match known {
            Some(AttributeValues::Any) => true,
            Some(AttributeValues::Int(allowed)) => allowed.contains(&number),
            Some(AttributeValues::Text(allowed)) => allowed.iter().any(|allowed| allowed.as_bytes() == attribute.s),
            Some(AttributeValues::Ones) => attribute.ints.iter().all(|number| *number == 1),
            Some(AttributeValues::Texts(allowed)) => {
                let mut given = attribute.strings.iter();
                given.len().is_multiple_of(allowed.len())
                    && allowed.iter().cycle().zip(given.by_ref()).all(|(allowed, given)| allowed.as_bytes() == given)
            }
            None => false,
        };
    // 1 is a float, 3 a text, 6 to 8 lists, as ONNX numbers the types of attributes.
    let shown = match attribute.r#type {
        1 => attribute.f.to_string(),
        2 => number.to_string(),
        3 => text(),
        6 => format!("{:?}", attribute.floats),
        7 => format!("{:?}", attribute.ints),
        8 => {
            let texts: Vec<_> = attribute.strings.iter().map(|text| String::from_utf8_lossy(text)).collect();
            format!("[{}]", texts.join(", "))
        }
        _ => "…".to_owned(),
    };
    (!heeded).then(|| gpux_core::catch_panic::shorten(&shown))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tract_onnx::pb::OperatorSetIdProto;

    use super::*;

    #[test]
    fn operators_are_documented_and_known_to_tract() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/onnx.md");
        let page = std::fs::read_to_string(page).unwrap();
        let list = page.split("<!-- operators -->").nth(1).unwrap().split("<!-- /operators -->").next().unwrap();
        let documented: Vec<_> = list.split('`').skip(1).step_by(2).collect();
        let mut known: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        known.sort_unstable();
        assert_eq!(documented, known);
        let parsers = tract_onnx::onnx().op_register.0;
        assert!(known.iter().all(|name| parsers.contains_key(*name)));
    }

    #[test]
    fn shapes_may_be_computed_from_sizes_but_not_from_inputs() {
        let node = |op_type: &str, input: &[&str], output: &str| NodeProto {
            op_type: op_type.to_owned(),
            input: input.iter().map(|name| (*name).to_owned()).collect(),
            output: vec![output.to_owned()],
            ..NodeProto::default()
        };
        let told = |nodes: Vec<NodeProto>| {
            let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 18 }];
            let graph = Some(GraphProto { node: nodes, ..GraphProto::default() });
            check(&ModelProto { graph, opset_import, ..ModelProto::default() })
        };
        let computed =
            vec![node("Shape", &["x"], "s"), node("Identity", &["s"], "t"), node("Reshape", &["x", "t"], "y")];
        assert!(told(computed).is_ok());
        let given = vec![node("Identity", &["s"], "t"), node("Reshape", &["x", "t"], "y")];
        assert_eq!(told(given).unwrap_err(), "operator `Reshape` with input 1 (`t`) that is not constant");
    }

    #[test]
    fn looks_up_operators_by_domain() {
        assert!(is_known("Conv") && !is_known("Det"));
        assert!(!is_known("com.microsoft.Conv") && !is_known("ai.onnx.ml.Conv"));
    }
}
