//! How many operations of arithmetic a node takes, from the shapes that it was given and gave.
//!
//! A product and a sum are two operations. What only moves numbers takes none.

/// The operations of one run of `operator`; `None` where the shapes do not tell.
pub(super) fn flops(operator: &str, inputs: &[Vec<u64>], outputs: &[Vec<u64>]) -> Option<u64> {
    let count = |shape: Option<&Vec<u64>>| shape.map(|shape| product(shape));
    let given = count(inputs.first())?;
    let gave = count(outputs.first())?;
    let tail = |index: usize| inputs.get(index).and_then(|weights| weights.get(1..)).map(product);
    let bias = |index: usize| if inputs.len() > index { gave } else { 0 };
    let sum = |products: Option<u64>, more: u64| Some(products?.saturating_mul(2).saturating_add(more));
    match operator {
        "Conv" => sum(gave.checked_mul(tail(1)?), bias(2)),
        "ConvInteger" => sum(gave.checked_mul(tail(1)?), 0),
        "QLinearConv" => sum(gave.checked_mul(tail(3)?), bias(8)),
        // Each number of the input meets every weight of its channel.
        "ConvTranspose" => sum(given.checked_mul(tail(1)?), bias(2)),
        "MatMul" | "MatMulInteger" | "QLinearMatMul" => sum(gave.checked_mul(*inputs.first()?.last()?), 0),
        "Gemm" => {
            let rows = *outputs.first()?.first()?;
            sum(gave.checked_mul(given / rows.max(1)), bias(2))
        }
        "LSTM" | "GRU" | "RNN" => {
            // Layout 0 and 1 differ in the order of the first two axes alone.
            let [one, other, ..] = inputs.first()?.as_slice() else { return None };
            let weights = count(inputs.get(1))?.checked_add(count(inputs.get(2))?)?;
            sum(one.checked_mul(*other)?.checked_mul(weights), 0)
        }
        // The shapes tell neither the summed axes nor the number of trees.
        "Einsum" | "Attention" | "DeformConv" | "LinearClassifier" | "LinearRegressor" => None,
        _ if operator.starts_with("TreeEnsemble") || operator.starts_with("SVM") => None,
        _ if MOVES.contains(&operator) => Some(0),
        "Softmax"
        | "LogSoftmax"
        | "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "RMSNormalization"
        | "MeanVarianceNormalization"
        | "LpNormalization"
        | "LRN" => given.checked_mul(5),
        "BatchNormalization" => given.checked_mul(2),
        // They look at each number that they are given, pools at least once.
        "MaxPool" | "AveragePool" | "GlobalAveragePool" | "GlobalMaxPool" | "ArgMax" | "ArgMin" | "TopK" | "CumSum" => {
            Some(given)
        }
        _ if operator.starts_with("Reduce") => Some(given),
        // One operation for each number that comes out: Add, Relu, Sigmoid, …
        _ => Some(gave),
    }
}

/// Operators that move numbers, make them up, or run other operators.
const MOVES: [&str; 40] = [
    "Cast",
    "CastLike",
    "CenterCropPad",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "Constant",
    "ConstantOfShape",
    "DepthToSpace",
    "Expand",
    "EyeLike",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "If",
    "Loop",
    "NonZero",
    "OneHot",
    "Pad",
    "Range",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "ScatterElements",
    "ScatterND",
    "SequenceAt",
    "SequenceConstruct",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Where",
];

fn product(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_flops() {
        let of = |operator, inputs: &[&[u64]], output: &[u64]| {
            let inputs: Vec<_> = inputs.iter().map(|shape| shape.to_vec()).collect();
            flops(operator, &inputs, &[output.to_vec()])
        };
        // 64 filters of 3 × 7 × 7, as the first layer of a ResNet.
        assert_eq!(
            of("Conv", &[&[1, 3, 224, 224], &[64, 3, 7, 7], &[64]], &[1, 64, 112, 112]),
            Some(64 * 112 * 112 * (2 * 3 * 7 * 7 + 1))
        );
        // Of a depthwise convolution, each filter sees one channel.
        assert_eq!(of("Conv", &[&[1, 32, 8, 8], &[32, 1, 3, 3]], &[1, 32, 8, 8]), Some(2 * 32 * 64 * 9));
        assert_eq!(of("ConvTranspose", &[&[1, 2, 4, 4], &[2, 3, 2, 2]], &[1, 3, 8, 8]), Some(2 * 32 * 12));
        assert_eq!(of("MatMul", &[&[2, 4, 8], &[8, 16]], &[2, 4, 16]), Some(2 * 2 * 4 * 16 * 8));
        assert_eq!(of("Gemm", &[&[5, 3], &[3, 7], &[7]], &[5, 7]), Some(5 * 7 * (2 * 3 + 1)));
        assert_eq!(of("Gemm", &[&[3, 5], &[3, 7]], &[5, 7]), Some(2 * 5 * 7 * 3), "the first is turned");
        // Two directions, four gates of 6 from 5 inputs and 6 states, over 10 steps of 2 sequences.
        let lstm = of("LSTM", &[&[10, 2, 5], &[2, 24, 5], &[2, 24, 6]], &[10, 2, 2, 6]);
        assert_eq!(lstm, Some(2 * 10 * 2 * (2 * 24 * 5 + 2 * 24 * 6)));
        assert_eq!(of("Reshape", &[&[4, 4], &[2]], &[16]), Some(0));
        assert_eq!(of("Add", &[&[4, 1], &[1, 8]], &[4, 8]), Some(32));
        assert_eq!(of("Softmax", &[&[2, 10]], &[2, 10]), Some(100));
        assert_eq!(of("Einsum", &[&[2, 10], &[10, 2]], &[2, 2]), None);
    }
}
