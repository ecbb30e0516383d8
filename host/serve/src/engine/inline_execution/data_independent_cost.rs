//! Steps and operators whose cost depends on input shapes alone.

use gpux_config::{Action, StepSpec};
use gpux_core::Dim;
use gpux_inference::{ExecutionProvider, ModelStep};

/// Whether at most one step runs a model.
pub(super) fn runs_one_model_at_most(steps: &[StepSpec]) -> bool {
    steps.iter().filter(|step| matches!(step.action, Action::Model(_))).count() <= 1
}

/// Whether a step's cost depends on shapes alone. Models are checked separately.
pub(super) fn is_step_data_independent(step: &StepSpec) -> bool {
    match step.action {
        Action::Model(_) => true,
        Action::Wasm(_) | Action::ForEach(_) => false,
        Action::BuiltIn(_) => STEPS.binary_search(&step.tag.value.as_str()).is_ok(),
    }
}

/// Whether a model's cost depends on shapes alone. Devices other than the CPU have their own queues.
pub(super) fn is_model_data_independent(model: &ModelStep) -> bool {
    let info = model.file().info();
    let is_planned =
        !model.engine().plans_each_shape() || info.inputs.iter().all(|input| is_fixed(input.shape.as_deref()));
    let mut operators = info.operators.keys();
    is_planned
        && model.provider() == ExecutionProvider::Cpu
        && operators.all(|operator| OPERATORS.binary_search(&operator.as_str()).is_ok())
}

fn is_fixed(shape: Option<&[Dim]>) -> bool {
    shape.is_some_and(|dims| dims.iter().all(|dim| matches!(dim, Dim::Fixed(_))))
}

/// Built-in steps, sorted. Excluded: steps whose cost depends on values (`nms`, `threshold`, `qa-span`), and steps that
/// read or write texts.
const STEPS: [&str; 25] = [
    "argmax",
    "cast",
    "clip",
    "concat",
    "expand",
    "l2-normalize",
    "labels",
    "log",
    "max",
    "mean",
    "normalize",
    "one-hot",
    "pad-tensor",
    "reshape",
    "scale",
    "sigmoid",
    "slice",
    "softmax",
    "split",
    "squeeze",
    "stack",
    "standardize",
    "sum",
    "top-k",
    "transpose",
];

/// Operators of `ai.onnx` and `ai.onnx.ml`, sorted. Excluded are operators whose cost depends on values: loops with a
/// count from an input (`Range`, `Loop`, the lengths of an `LSTM`), output shapes or axes from an input (`Expand`,
/// `Resize`, `Tile`, `Reshape`, `Split`, the `Reduce` family), and data-dependent work (`TreeEnsemble`; `Mod`, where
/// the remainder of a large number by a small one takes a hundred times as long).
const OPERATORS: [&str; 116] = [
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "AveragePool",
    "BatchNormalization",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Concat",
    "Constant",
    "Conv",
    "Cos",
    "Cosh",
    "CumSum",
    "DepthToSpace",
    "DequantizeLinear",
    "Div",
    "DynamicQuantizeLinear",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "IsInf",
    "IsNaN",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MatMul",
    "MatMulInteger",
    "Max",
    "MaxPool",
    "Mean",
    "MeanVarianceNormalization",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
    "RMSNormalization",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shape",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Size",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Sqrt",
    "Sub",
    "Sum",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Transpose",
    "Where",
    "Xor",
    "ai.onnx.ml.ArrayFeatureExtractor",
    "ai.onnx.ml.Binarizer",
    "ai.onnx.ml.FeatureVectorizer",
    "ai.onnx.ml.Imputer",
    "ai.onnx.ml.LabelEncoder",
    "ai.onnx.ml.LinearClassifier",
    "ai.onnx.ml.LinearRegressor",
    "ai.onnx.ml.Normalizer",
    "ai.onnx.ml.OneHotEncoder",
    "ai.onnx.ml.SVMClassifier",
    "ai.onnx.ml.SVMRegressor",
    "ai.onnx.ml.Scaler",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_dependent_operators_have_no_fixed_cost() {
        assert!(STEPS.is_sorted() && OPERATORS.is_sorted());
        let by_numbers = [
            "ConstantOfShape",
            "Expand",
            "If",
            "LSTM",
            "Loop",
            "NonZero",
            "Pad",
            "Range",
            "ReduceSum",
            "Reshape",
            "Resize",
            "Scan",
            "Split",
            "Tile",
            "TopK",
            "ai.onnx.ml.TreeEnsembleRegressor",
        ];
        assert!(by_numbers.iter().all(|operator| OPERATORS.binary_search(operator).is_err()));
        assert!(["nms", "threshold", "tokenize"].iter().all(|step| STEPS.binary_search(step).is_err()));
    }
}
