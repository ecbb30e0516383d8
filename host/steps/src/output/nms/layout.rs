//! The layouts of detectors' outputs, and which of them a shape has.

/// What a model gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum DetectorLayout {
    /// by the shape
    Auto,
    /// `[4 + classes, anchors]`
    Yolov8,
    /// `[anchors, 5 + classes]`
    Yolov5,
    /// `[anchors, 4 + classes]`
    Transposed,
    /// `[boxes, 6]`
    EndToEnd,
    /// boxes and scores on ports of their own
    Separate,
}

/// The largest `max_det` that exports of end-to-end models are known with is 300.
const MOST_END_TO_END: usize = 1000;

/// Cells of the grids of three levels, strides 8 to 32, or of four, for each cell of the coarsest: anchors come in
/// multiples of it.
const CELLS: [usize; 2] = [1 + 4 + 16, 1 + 4 + 16 + 64];

impl DetectorLayout {
    pub(super) const fn shape(self) -> &'static str {
        match self {
            Self::Auto | Self::Yolov8 => "[4 + classes, anchors]",
            Self::Yolov5 => "[anchors, 5 + classes]",
            Self::Transposed => "[anchors, 4 + classes]",
            Self::EndToEnd => "[boxes, 6]",
            Self::Separate => "[anchors, 4]",
        }
    }

    /// The numbers of an anchor that are neither a class's score nor extra.
    pub(super) const fn fixed_columns(self) -> usize {
        match self {
            Self::Auto | Self::Yolov8 | Self::Transposed | Self::Separate => 4,
            Self::Yolov5 => 5,
            Self::EndToEnd => 6,
        }
    }

    /// The layout of a tensor with these last two axes, where that is certain: by the number of labels; else rows that
    /// are fewer than the columns are `yolov8`, and some hundred rows of six are boxes with score and class. `extra`
    /// numbers follow the classes.
    pub(super) fn of_shape([rows, columns]: [usize; 2], labels: Option<usize>, extra: usize) -> Result<Self, String> {
        let is_end_to_end = columns == Self::EndToEnd.fixed_columns() + extra
            && rows > columns
            && rows <= MOST_END_TO_END
            && CELLS.iter().all(|cells| rows % cells != 0);
        let has =
            |layout: Self, size: usize| labels.is_some_and(|labels| size == layout.fixed_columns() + labels + extra);
        match () {
            () if has(Self::Yolov8, rows) => Ok(Self::Yolov8),
            () if is_end_to_end => Ok(Self::EndToEnd),
            () if has(Self::Transposed, columns) => Ok(Self::Transposed),
            () if has(Self::Yolov5, columns) => Ok(Self::Yolov5),
            // With other labels than classes, `yolov8` says so.
            () if rows <= columns || columns <= Self::Transposed.fixed_columns() + extra => Ok(Self::Yolov8),
            () => Err(format!("its shape [{rows}, {columns}] {}", Self::advice(columns, extra))),
        }
    }

    /// What to write where each row is an anchor.
    pub(super) fn advice(columns: usize, extra: usize) -> String {
        let mut layouts = vec!["`layout: transposed` ([anchors, 4 + classes])", "`yolov5` ([anchors, 5 + classes])"];
        if columns == Self::EndToEnd.fixed_columns() + extra {
            layouts.insert(0, "`layout: end-to-end` (rows of two corners, score, class)");
        }
        layouts.push("`yolov8` ([4 + classes, anchors])");
        format!("fits several layouts; say which: {}", layouts.join(", "))
    }
}
