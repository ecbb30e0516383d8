//! The table: for each operator, what has been compared with ONNX Runtime and came out right.

use super::{BOOL, DOUBLE, Elements, FLOAT, INT32, INT64, NodeView, UINT8};

/// The supported forms of one operator.
pub(super) struct Operator {
    pub(super) domain: &'static str,
    pub(super) name: &'static str,
    /// versions of the operator set
    pub(super) since: i64,
    pub(super) until: i64,
    /// the attributes that are heeded, with the values for which they are
    pub(super) attributes: &'static [(&'static str, AttributeValues)],
    /// the element types of each input; the last of these is that of all further inputs
    pub(super) elements: &'static [Elements],
    /// how many inputs may be given
    pub(super) inputs: usize,
    /// inputs among these that may not be given
    pub(super) without: &'static [usize],
    /// inputs that are known when the model is planned: constants, or computed from constants and sizes
    pub(super) constants: &'static [usize],
    /// how many outputs may be asked for
    pub(super) outputs: usize,
    /// the element type of each output; the last of these is that of all further outputs
    pub(super) gives: &'static [OutputType],
    /// what else must hold: gives whether it may be planned for any shape, or what does not hold
    pub(super) check: Option<Check>,
}

pub(super) type Check = fn(&NodeView<'_>) -> Result<bool, String>;

/// The values of an attribute for which an operator is known to be right.
pub(super) enum AttributeValues {
    Any,
    Int(&'static [i64]),
    Text(&'static [&'static str]),
    /// a list of whole numbers that are all 1
    Ones,
    /// a list of texts: these, once or several times over
    Texts(&'static [&'static str]),
}

/// Where the element type of an output comes from.
pub(super) enum OutputType {
    Input(usize),
    InputOr(usize, i32),
    Element(i32),
    Attribute(&'static str, i32),
    AttributeOrInput(&'static str),
    /// the tensor in an attribute
    Value,
    /// the output of the same number of the operator's own graph
    Graph,
}

use AttributeValues::{Any, Int, Ones, Text, Texts};

pub(super) const F16: Elements = 1 << 10;
pub(super) const F32: Elements = 1 << 1;
pub(super) const F64: Elements = 1 << 11;
pub(super) const FLOATS: Elements = F16 | F32 | F64;
pub(super) const U8: Elements = 1 << 2;
pub(super) const I8: Elements = 1 << 3;
pub(super) const I32: Elements = 1 << 6;
pub(super) const I64: Elements = 1 << 7;
pub(super) const BOOLS: Elements = 1 << 9;
pub(super) const SIGNED: Elements = I8 | (1 << 5) | I32 | I64;
pub(super) const UNSIGNED: Elements = U8 | (1 << 4) | (1 << 12) | (1 << 13);
pub(super) const INTS: Elements = SIGNED | UNSIGNED;
pub(super) const NUMBERS: Elements = FLOATS | INTS;
pub(super) const ALL: Elements = NUMBERS | BOOLS;

const LAST: i64 = 26;

/// An operator with one output of the element type of its first input.
const fn op(name: &'static str, elements: &'static [Elements]) -> Operator {
    Operator {
        domain: "",
        name,
        since: 6,
        until: LAST,
        attributes: &[],
        elements,
        inputs: 1,
        without: &[],
        constants: &[],
        outputs: 1,
        gives: &[OutputType::Input(0)],
        check: None,
    }
}

impl Operator {
    const fn with(mut self, attributes: &'static [(&'static str, AttributeValues)]) -> Self {
        self.attributes = attributes;
        self
    }

    const fn inputs(mut self, inputs: usize) -> Self {
        self.inputs = inputs;
        self
    }

    const fn without(mut self, without: &'static [usize]) -> Self {
        self.without = without;
        self
    }

    const fn constants(mut self, constants: &'static [usize]) -> Self {
        self.constants = constants;
        self
    }

    const fn outputs(mut self, outputs: usize) -> Self {
        self.outputs = outputs;
        self
    }

    const fn gives(mut self, gives: &'static [OutputType]) -> Self {
        self.gives = gives;
        self
    }

    const fn since(mut self, since: i64) -> Self {
        self.since = since;
        self
    }

    const fn until(mut self, until: i64) -> Self {
        self.until = until;
        self
    }

    const fn check(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }
}

const GIVES_BOOL: &[OutputType] = &[OutputType::Element(BOOL)];
const GIVES_INT64: &[OutputType] = &[OutputType::Element(INT64)];
const REDUCE: &[(&str, AttributeValues)] = &[("axes", Any), ("keepdims", Any), ("noop_with_empty_axes", Any)];
const ARG: &[(&str, AttributeValues)] = &[("axis", Any), ("keepdims", Any), ("select_last_index", Int(&[0]))];
const AXIS: &[(&str, AttributeValues)] = &[("axis", Any)];
const CONV: &[(&str, AttributeValues)] =
    &[("auto_pad", Any), ("dilations", Any), ("group", Any), ("kernel_shape", Any), ("pads", Any), ("strides", Any)];
const RESIZE_MODES: &[&str] =
    &["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"];
const REDUCTIONS: &[&str] = &["none", "add", "mul"];
const MANY: usize = usize::MAX;

#[rustfmt::skip]
pub(super) const TABLE: &[Operator] = &[
    // One number at a time.
    op("Abs", &[NUMBERS]),
    op("Acos", &[FLOATS]),
    op("Acosh", &[FLOATS]),
    op("Asin", &[FLOATS]),
    op("Asinh", &[FLOATS]),
    op("Atan", &[FLOATS]),
    op("Atanh", &[FLOATS]),
    op("BitwiseNot", &[INTS]),
    op("Ceil", &[FLOATS]),
    op("Celu", &[F32]).with(&[("alpha", Any)]),
    op("Cos", &[FLOATS]),
    op("Cosh", &[FLOATS]),
    op("Elu", &[F32 | F64]).with(&[("alpha", Any)]),
    op("Erf", &[FLOATS]),
    op("Exp", &[FLOATS]),
    op("Floor", &[FLOATS]),
    op("Gelu", &[F16 | F32]).with(&[("approximate", Text(&["none", "tanh"]))]),
    op("HardSigmoid", &[FLOATS]).with(&[("alpha", Any), ("beta", Any)]),
    op("HardSwish", &[F16 | F32]),
    op("Identity", &[ALL]),
    op("IsInf", &[F16 | F32]).with(&[("detect_negative", Any), ("detect_positive", Any)]).gives(GIVES_BOOL),
    op("IsNaN", &[F16 | F32]).gives(GIVES_BOOL),
    op("LeakyRelu", &[F16 | F32]).with(&[("alpha", Any)]),
    op("Log", &[FLOATS]),
    op("Mish", &[FLOATS]),
    op("Neg", &[FLOATS | SIGNED]),
    op("Not", &[BOOLS]),
    op("Reciprocal", &[FLOATS]),
    op("Relu", &[FLOATS | SIGNED]),
    op("Round", &[F16 | F32]),
    op("Selu", &[F32 | F64]).with(&[("alpha", Any), ("gamma", Any)]),
    op("Shrink", &[FLOATS]).with(&[("bias", Any), ("lambd", Any)]),
    op("Sigmoid", &[F16 | F32]),
    op("Sign", &[F32 | F64 | INTS]),
    op("Sin", &[FLOATS]),
    op("Sinh", &[FLOATS]),
    op("Softplus", &[F32 | F64]),
    op("Softsign", &[FLOATS]),
    op("Sqrt", &[FLOATS]),
    op("Swish", &[F16 | F32]),
    op("Tan", &[FLOATS]),
    op("Tanh", &[FLOATS]),
    op("ThresholdedRelu", &[FLOATS]).with(&[("alpha", Any)]),
    op("Cast", &[ALL]).with(&[("to", Any), ("saturate", Any)]).gives(&[OutputType::Attribute("to", FLOAT)]),
    op("CastLike", &[ALL]).with(&[("saturate", Any)]).inputs(2).gives(&[OutputType::Input(1)]),
    op("Clip", &[NUMBERS]).with(&[("max", Any), ("min", Any)]).inputs(3),
    op("Dropout", &[FLOATS, FLOATS, BOOLS]).with(&[("ratio", Any), ("seed", Any)]).inputs(3).constants(&[2]).check(dropout),

    // Several tensors, one number of each at a time.
    op("Add", &[NUMBERS]).inputs(2),
    op("And", &[BOOLS]).inputs(2),
    op("BitShift", &[UNSIGNED]).with(&[("direction", Any)]).inputs(2),
    op("BitwiseAnd", &[INTS]).inputs(2),
    op("BitwiseOr", &[INTS]).inputs(2),
    op("BitwiseXor", &[INTS]).inputs(2),
    op("Div", &[NUMBERS]).inputs(2),
    op("Equal", &[NUMBERS]).inputs(2).gives(GIVES_BOOL),
    op("Greater", &[NUMBERS]).inputs(2).gives(GIVES_BOOL),
    op("GreaterOrEqual", &[NUMBERS]).inputs(2).gives(GIVES_BOOL),
    op("Less", &[NUMBERS]).inputs(2).gives(GIVES_BOOL),
    op("LessOrEqual", &[NUMBERS]).inputs(2).gives(GIVES_BOOL),
    op("Max", &[NUMBERS]).inputs(MANY),
    op("Mean", &[FLOATS]).inputs(MANY),
    op("Min", &[NUMBERS]).inputs(MANY),
    op("Mod", &[NUMBERS]).with(&[("fmod", Any)]).inputs(2),
    op("Mul", &[NUMBERS]).inputs(2),
    op("Or", &[BOOLS]).inputs(2),
    op("Pow", &[F32 | F64, NUMBERS]).inputs(2).check(pow),
    op("PRelu", &[NUMBERS]).inputs(2),
    op("Sub", &[NUMBERS]).inputs(2),
    op("Sum", &[NUMBERS]).inputs(MANY),
    op("Where", &[BOOLS, ALL]).inputs(3).gives(&[OutputType::Input(1)]),
    op("Xor", &[BOOLS]).inputs(2),

    // Along axes.
    op("ArgMax", &[NUMBERS]).with(ARG).gives(GIVES_INT64),
    op("ArgMin", &[NUMBERS]).with(ARG).gives(GIVES_INT64),
    op("CumSum", &[NUMBERS]).with(&[("exclusive", Any), ("reverse", Any)]).inputs(2).constants(&[1]),
    op("LogSoftmax", &[F16 | F32]).with(AXIS),
    op("LpNormalization", &[FLOATS]).with(&[("axis", Any), ("p", Any)]),
    op("ReduceL1", &[NUMBERS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceL2", &[FLOATS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceLogSum", &[FLOATS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceMax", &[NUMBERS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceMean", &[FLOATS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceMin", &[NUMBERS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceProd", &[NUMBERS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceSum", &[NUMBERS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("ReduceSumSquare", &[FLOATS, I64]).with(REDUCE).inputs(2).constants(&[1]),
    op("Softmax", &[FLOATS]).with(AXIS),
    op("TopK", &[NUMBERS, I64]).with(&[("axis", Any), ("largest", Any), ("sorted", Int(&[1]))]).inputs(2).outputs(2).since(10)
        .gives(&[OutputType::Input(0), OutputType::Element(INT64)]),

    // Layers.
    op("AveragePool", &[FLOATS]).with(&[("auto_pad", Any), ("ceil_mode", Any), ("count_include_pad", Any), ("dilations", Ones),
        ("kernel_shape", Any), ("pads", Any), ("strides", Any)]).check(pool),
    op("BatchNormalization", &[FLOATS]).with(&[("epsilon", Any), ("momentum", Any), ("spatial", Int(&[1])),
        ("training_mode", Int(&[0]))]).inputs(5).constants(&[1, 2, 3, 4]),
    op("Conv", &[FLOATS]).with(CONV).inputs(3),
    op("ConvInteger", &[U8 | I8]).with(CONV).inputs(4).gives(&[OutputType::Element(INT32)]),
    op("ConvTranspose", &[FLOATS]).with(&[("auto_pad", Text(&["NOTSET", "VALID"])), ("dilations", Any), ("group", Any), ("kernel_shape", Any),
        ("output_padding", Any), ("pads", Any), ("strides", Any)]).inputs(3),
    op("Einsum", &[FLOATS | I32]).with(&[("equation", Any)]).inputs(MANY).check(einsum),
    op("Gemm", &[F32]).with(&[("alpha", Any), ("beta", Any), ("transA", Any), ("transB", Any)]).inputs(3),
    op("GlobalAveragePool", &[FLOATS]),
    op("GlobalMaxPool", &[FLOATS]),
    op("GridSample", &[F32]).with(&[("align_corners", Any), ("mode", Text(&["bilinear", "linear", "nearest"])),
        ("padding_mode", Any)]).inputs(2).since(16),
    op("GroupNormalization", &[F16 | F32]).with(&[("epsilon", Any), ("num_groups", Any), ("stash_type", Int(&[1]))]).inputs(3)
        .since(21),
    op("GRU", &[F32, F32, F32, F32, I32, F32]).with(&[("direction", Text(&["forward", "bidirectional"])), ("hidden_size", Any),
        ("linear_before_reset", Any), ("layout", Any), ("activations", Texts(&["Sigmoid", "Tanh"]))]).inputs(6).outputs(2).without(&[4]).check(gru),
    op("InstanceNormalization", &[FLOATS]).with(&[("epsilon", Any)]).inputs(3),
    op("LayerNormalization", &[F16 | F32]).with(&[("axis", Any), ("epsilon", Any), ("stash_type", Int(&[1]))]).inputs(3).since(17),
    op("LRN", &[FLOATS]).with(&[("alpha", Any), ("beta", Any), ("bias", Any), ("size", Any)]),
    op("LSTM", &[F32, F32, F32, F32, I32, F32]).with(&[("direction", Text(&["forward", "bidirectional"])), ("hidden_size", Any),
        ("input_forget", Int(&[0])), ("layout", Any), ("activations", Texts(&["Sigmoid", "Tanh", "Tanh"]))]).inputs(8).outputs(3).without(&[4]).check(lstm),
    op("MatMul", &[FLOATS]).inputs(2),
    op("MatMulInteger", &[U8 | I8]).inputs(4).gives(&[OutputType::Element(INT32)]),
    // Others keep -inf, where tract gives the least finite number.
    op("MaxPool", &[F32 | I8 | U8]).with(&[("auto_pad", Any), ("ceil_mode", Any), ("dilations", Ones), ("kernel_shape", Any),
        ("pads", Any), ("storage_order", Any), ("strides", Any)]).check(pool),
    op("QLinearConv", &[U8 | I8, F32, U8 | I8, U8 | I8, F32, U8 | I8, F32, U8 | I8, I32]).with(CONV).inputs(9)
        .gives(&[OutputType::Input(7)]),
    op("QLinearMatMul", &[U8 | I8, F32, U8 | I8, U8 | I8, F32, U8 | I8, F32, U8 | I8]).inputs(8).gives(&[OutputType::Input(7)]),
    op("QuantizeLinear", &[F32, F32, U8 | I8]).with(&[("axis", Any), ("saturate", Any), ("block_size", Int(&[0]))]).inputs(3)
        .gives(&[OutputType::InputOr(2, UINT8)]).constants(&[1, 2]).check(scales),
    op("DequantizeLinear", &[U8 | I8 | I32, F32, U8 | I8 | I32]).with(&[("axis", Any), ("block_size", Int(&[0]))]).inputs(3)
        .gives(&[OutputType::Input(1)]).constants(&[1, 2]).check(scales),
    op("DynamicQuantizeLinear", &[F32]).outputs(3).gives(&[OutputType::Element(UINT8), OutputType::Element(FLOAT), OutputType::Element(UINT8)]),
    op("RMSNormalization", &[F16 | F32]).with(&[("axis", Any), ("epsilon", Any), ("stash_type", Int(&[1]))]).inputs(2).since(23),
    op("RNN", &[F32, F32, F32, F32, I32, F32]).with(&[("direction", Text(&["forward", "bidirectional"])), ("hidden_size", Any),
        ("layout", Any), ("activations", Texts(&["Tanh"]))]).inputs(6).outputs(2).without(&[4]),
    op("RotaryEmbedding", &[FLOATS, FLOATS, FLOATS, I64]).with(&[("interleaved", Any), ("num_heads", Any),
        ("rotary_embedding_dim", Any)]).inputs(4).since(23),
    op("DFT", &[FLOATS, I32 | I64]).with(&[("axis", Any), ("inverse", Int(&[0])), ("onesided", Any)]).inputs(3).without(&[1])
        .since(17),
    op("STFT", &[FLOATS, I32 | I64, FLOATS, I32 | I64]).with(&[("onesided", Any)]).inputs(4).since(17),

    // Shapes and indices.
    op("Concat", &[ALL]).with(AXIS).inputs(MANY),
    op("Constant", &[]).with(&[("value", Any), ("value_float", Any), ("value_floats", Any), ("value_int", Any),
        ("value_ints", Any)]).inputs(0).gives(&[OutputType::Value]),
    op("ConstantOfShape", &[I64]).with(&[("value", Any)]).since(9).gives(&[OutputType::Value]).constants(&[0]),
    op("DepthToSpace", &[ALL]).with(&[("blocksize", Any), ("mode", Any)]),
    op("Expand", &[ALL, I64]).inputs(2).since(8).constants(&[1]),
    op("EyeLike", &[ALL]).with(&[("dtype", Any), ("k", Any)]).since(9).gives(&[OutputType::AttributeOrInput("dtype")]),
    op("Flatten", &[ALL]).with(AXIS),
    op("Gather", &[ALL, I32 | I64]).with(AXIS).inputs(2),
    op("GatherElements", &[ALL, I32 | I64]).with(AXIS).inputs(2).since(11),
    op("GatherND", &[ALL, I64]).with(&[("batch_dims", Any)]).inputs(2).since(11),
    op("NonMaxSuppression", &[F32, F32, I64, F32]).with(&[("center_point_box", Any)]).inputs(5).since(10).gives(GIVES_INT64)
        .check(non_max_suppression),
    op("NonZero", &[ALL]).since(9).gives(GIVES_INT64),
    op("Pad", &[NUMBERS, I64, NUMBERS, I32 | I64]).with(&[("mode", Text(&["constant", "edge", "reflect"])), ("pads", Any), ("value", Any)])
        .inputs(4).constants(&[1, 2, 3]).check(pad),
    op("Range", &[NUMBERS]).inputs(3).since(11),
    op("Reshape", &[ALL, I64]).with(&[("allowzero", Any)]).inputs(2).constants(&[1]),
    op("Resize", &[F32 | U8 | I8, F32, F32, I64]).with(&[("antialias", Int(&[0])), ("axes", Any),
        ("coordinate_transformation_mode", Text(RESIZE_MODES)), ("cubic_coeff_a", Any), ("exclude_outside", Any), ("extrapolation_value", Any),
        ("keep_aspect_ratio_policy", Text(&["stretch"])), ("mode", Any), ("nearest_mode", Any)]).inputs(4).since(11).check(resize),
    op("Scatter", &[ALL, I32 | I64, ALL]).with(AXIS).inputs(3).since(9).until(10),
    op("ScatterElements", &[ALL, I32 | I64, ALL]).with(&[("axis", Any), ("reduction", Text(REDUCTIONS))]).inputs(3).since(11).check(scatter),
    op("ScatterND", &[ALL, I64, ALL]).with(&[("reduction", Text(REDUCTIONS))]).inputs(3).since(11).check(scatter),
    op("Shape", &[ALL]).with(&[("end", Any), ("start", Any)]).gives(GIVES_INT64),
    op("Size", &[ALL]).gives(GIVES_INT64),
    op("Slice", &[ALL, I32 | I64]).with(&[("axes", Any), ("ends", Any), ("starts", Any)]).inputs(5).constants(&[1, 2, 3, 4]).check(slice),
    op("SpaceToDepth", &[ALL]).with(&[("blocksize", Any)]),
    op("Split", &[ALL, I64]).with(&[("axis", Any), ("num_outputs", Any), ("split", Any)]).inputs(2).outputs(MANY).constants(&[1]),
    op("Squeeze", &[ALL, I64]).with(&[("axes", Any)]).inputs(2).constants(&[1]).check(squeeze),
    op("Tile", &[ALL, I64]).inputs(2).constants(&[1]),
    op("Transpose", &[ALL]).with(&[("perm", Any)]),
    op("Trilu", &[ALL, I64]).with(&[("upper", Any)]).inputs(2).since(14),
    op("Unsqueeze", &[ALL, I64]).with(&[("axes", Any)]).inputs(2).constants(&[1]),

    // Operators with graphs of their own.
    op("If", &[BOOLS]).with(&[("else_branch", Any), ("then_branch", Any)]).outputs(MANY).gives(&[OutputType::Graph]),
    op("Scan", &[ALL]).with(&[("body", Any), ("num_scan_inputs", Any), ("scan_input_axes", Any), ("scan_input_directions", Any),
        ("scan_output_axes", Any), ("scan_output_directions", Any)]).inputs(MANY).outputs(MANY).since(9).gives(&[OutputType::Graph]),
];

/// tract leaves axes in a result that has none, and fits `...` otherwise than NumPy does.
fn einsum(node: &NodeView<'_>) -> Result<bool, String> {
    let equation = node.text("equation", "");
    let is_plain = equation.split_once("->").is_some_and(|(_, result)| !result.trim().is_empty());
    if is_plain && !equation.contains("...") { Ok(true) } else { Err(format!("`equation: {equation}`")) }
}

/// tract's loop over a whole sequence fails on numbers that come one at a time.
fn gru(node: &NodeView<'_>) -> Result<bool, String> {
    let one = node.constant(1).is_some_and(|weights| weights.dims.last() == Some(&1));
    let before = node.attribute("linear_before_reset").is_some_and(|before| before.i == 1);
    if one && before { Err("`linear_before_reset: 1` and inputs of size 1".to_owned()) } else { Ok(true) }
}

/// tract takes the first scale, where there is none too.
fn scales(node: &NodeView<'_>) -> Result<bool, String> {
    let is_empty = node.constant(1).is_some_and(|scales| scales.dims.contains(&0));
    if is_empty { Err("no scale".to_owned()) } else { Ok(true) }
}

/// tract does not train.
fn dropout(node: &NodeView<'_>) -> Result<bool, String> {
    let trains =
        node.constant(2).is_some_and(|mode| mode.raw_data.first() == Some(&1) || mode.int32_data.first() == Some(&1));
    if trains { Err("training".to_owned()) } else { Ok(true) }
}

/// tract merges two loop states that start with the same constant.
fn lstm(node: &NodeView<'_>) -> Result<bool, String> {
    let is_one_way = node.text("direction", "forward") != "bidirectional";
    let gives_both = node.is_used(2) && (node.is_used(0) || node.is_used(1));
    if is_one_way && gives_both && node.is_known(5) && node.is_known(6) {
        return Err("output 2 beside others, and constant states at the beginning".to_owned());
    }
    Ok(true)
}

/// tract computes in the wider of two types, where the result is to be of the first.
fn pow(node: &NodeView<'_>) -> Result<bool, String> {
    let widens = node.element(0) == Some(FLOAT) && node.element(1) == Some(DOUBLE);
    if widens { Err("an exponent of float64".to_owned()) } else { Ok(true) }
}

/// tract adds and multiplies numbers only.
fn scatter(node: &NodeView<'_>) -> Result<bool, String> {
    let reduction = node.text("reduction", "none");
    let is_bool = node.element(0) == Some(BOOL);
    if is_bool && reduction != "none" { Err(format!("`reduction: {reduction}` on bool")) } else { Ok(true) }
}

/// tract rounds the number of windows up without heed to pads.
fn pool(node: &NodeView<'_>) -> Result<bool, String> {
    let rounds_up = node.attribute("ceil_mode").is_some_and(|mode| mode.i == 1);
    let pads = node.attribute("pads").is_some_and(|pads| pads.ints.iter().any(|pad| *pad != 0));
    let auto = node.text("auto_pad", "NOTSET") != "NOTSET";
    if rounds_up && (pads || auto) { Err("`ceil_mode: 1` and pads".to_owned()) } else { Ok(true) }
}

/// tract aligns corners by the size that was asked for, and knows no size of 1 of its own for `pytorch_half_pixel`.
fn resize(node: &NodeView<'_>) -> Result<bool, String> {
    let coordinates = node.text("coordinate_transformation_mode", "half_pixel");
    match (coordinates.as_str(), node.text("mode", "nearest").as_str()) {
        ("align_corners", _) if !node.has(3) => Err("`align_corners` and scales".to_owned()),
        ("pytorch_half_pixel", "cubic") => Err("`pytorch_half_pixel` and `mode: cubic`".to_owned()),
        _ => Ok(true),
    }
}

/// tract takes no limit, or one of 0, as none at all, and limits as lists of one.
fn non_max_suppression(node: &NodeView<'_>) -> Result<bool, String> {
    if (2..5).any(|input| node.constant(input).is_some_and(|limit| limit.dims.len() != 1)) {
        return Err("a limit without an axis".to_owned());
    }
    match node.ints(2) {
        Some(limit) if limit.iter().all(|limit| *limit > 0) => Ok(true),
        _ => Err("a `max_output_boxes_per_class` that is not a constant above 0".to_owned()),
    }
}

/// tract pads with the constant, whatever the mode, and cuts nothing off.
fn pad(node: &NodeView<'_>) -> Result<bool, String> {
    let given = node.attribute("pads").map(|pads| pads.ints.clone()).or_else(|| node.ints(1));
    if given.iter().flatten().any(|pad| *pad < 0) {
        return Err("pads below 0".to_owned());
    }
    let mode = node.text("mode", "constant");
    if node.has(2) && mode != "constant" { Err(format!("`mode: {mode}` and a constant")) } else { Ok(true) }
}

/// Steps need to be part of the model, and backwards only whole axes come right.
fn slice(node: &NodeView<'_>) -> Result<bool, String> {
    const MOST: i64 = i32::MAX as i64;
    let (starts, ends) = (node.ints(1), node.ints(2));
    if !node.has(1) && node.attribute("axes").is_none() {
        return Err("no `axes`".to_owned());
    }
    if starts.iter().flatten().any(|start| *start > MOST || *start < -MOST) {
        return Err("a start that is out of range".to_owned());
    }
    if !node.has(4) {
        return Ok(true);
    }
    let Some(steps) = node.ints(4) else { return Err("steps that are not constant".to_owned()) };
    if steps.iter().all(|step| *step == 1) {
        return Ok(true);
    }
    let (Some(starts), Some(ends)) = (starts, ends) else {
        return Err("steps, and bounds that are not constant".to_owned());
    };
    for ((start, end), step) in starts.iter().zip(&ends).zip(&steps) {
        if *step < 0 && (*start != -1 || *end >= -MOST) {
            return Err(format!("steps of {step} from {start} to {end}"));
        }
    }
    Ok(true)
}

/// Which axes are of size 1 is not known before their sizes are.
#[expect(clippy::unnecessary_wraps, reason = "as every check of the table")]
fn squeeze(node: &NodeView<'_>) -> Result<bool, String> {
    Ok(node.has(1) || node.attribute("axes").is_some())
}
