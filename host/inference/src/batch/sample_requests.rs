//! Made-up requests for trials of a model.

use smallvec::smallvec;

use super::super::graph::ModelInfo;
use super::super::sessions::ModelInputs;
use gpux_core::{Dim, ElementType, Kind, Port, Signature, Tensor};

/// The most elements of an input.
const MOST: usize = 1 << 24;

/// The least part of its bounds that a number of a wide range is.
const LEAST_PART: f64 = 1e-7;

/// The values of made-up rows.
#[derive(Clone, Copy)]
pub(super) struct ValueRange {
    /// whole numbers are below this
    integer_bound: u64,
    /// fractions lie between these
    low: f64,
    high: f64,
    /// whether fractions are of any magnitude up to these bounds
    is_wide: bool,
    /// whether whole numbers are below what the model can index instead, where its graph shows that
    indexes_all: bool,
}

impl ValueRange {
    const fn between(low: f64, high: f64, integer_bound: u64) -> Self {
        Self { integer_bound, low, high, is_wide: false, indexes_all: true }
    }

    /// What most models take, then what some take: rows that depend on each other may do so for some values only.
    /// Where a model takes no numbers as large as a later range's, that is passed over.
    pub(super) const ALL: [Self; 5] = [
        Self { indexes_all: false, ..Self::between(0.0, 1.0, 2) },
        Self::between(-1.0, 1.0, 2),
        Self::between(-4.0, 4.0, 16),
        Self::between(0.0, 255.0, 256),
        // Columns of tables.
        Self { is_wide: true, ..Self::between(-10_000.0, 10_000.0, 30_000) },
    ];
}

/// Makes up requests for one model.
pub(super) struct SampleRequests<'a> {
    pub(super) signature: &'a Signature,
    pub(super) info: &'a ModelInfo,
}

impl SampleRequests<'_> {
    /// A request of `rows` rows whose open dimensions have this `size`; `number` is its seed. `None` for one that is
    /// too large or that nothing can be made up for.
    pub(super) fn make(&self, range: ValueRange, size: usize, rows: usize, number: usize) -> Option<ModelInputs> {
        let mut inputs: ModelInputs = smallvec![];
        for (index, port) in self.signature.inputs.iter().enumerate().filter(|(_, port)| !port.optional) {
            let Kind::Tensor(kind) = &port.kind else { return None };
            let dim = |(axis, dim): (usize, &Dim)| match (axis, dim) {
                (0, _) => rows,
                (_, Dim::Fixed(fixed)) => *fixed,
                _ => size,
            };
            let shape: Vec<_> = kind.shape.as_ref()?.iter().enumerate().map(dim).collect();
            let count = gpux_core::element_count(&shape).filter(|count| *count <= MOST)?;
            let limit = self.info.inputs.get(index).and_then(|input| input.index_limit);
            let integer_bound = limit.filter(|_| range.indexes_all).unwrap_or(range.integer_bound);
            let range = ValueRange { integer_bound, ..range };
            inputs.push((index, tensor(port, kind.element()?, shape, count, range, number)?));
        }
        Some(inputs)
    }
}

/// Numbers in no order, and ones for a mask. Every second request is nearly all zeros: unlike its
/// neighbours.
fn tensor(
    port: &Port,
    element: ElementType,
    shape: Vec<usize>,
    count: usize,
    range: ValueRange,
    number: usize,
) -> Option<Tensor> {
    if element == ElementType::String {
        return Tensor::new(shape, vec![["a", "b"][number % 2].to_owned(); count]).ok();
    }
    let value = |at: usize| {
        let mixed = splitmix64(at as u64 ^ (number as u64) << 40);
        let part = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        match element {
            _ if port.name.contains("mask") => 1.0,
            _ if number % 2 == 1 && !mixed.is_multiple_of(8) => 0.0,
            element if element.is_float() && range.is_wide => {
                (if mixed & 1 == 0 { range.low } else { range.high }) * LEAST_PART.powf(part)
            }
            element if element.is_float() => range.low + part * (range.high - range.low),
            _ => (part * range.integer_bound as f64).floor(),
        }
    };
    Tensor::new(shape, (0..count).map(value).collect::<Vec<f64>>()).ok()?.cast(element).ok()
}

/// SplitMix64: every bit of the number has an effect on every bit of the result.
fn splitmix64(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}
