//! Adapts tensors to a model's inputs where the change is unambiguous.

use std::fmt;

use smallvec::SmallVec;

use gpux_core::{CancelCheck, Dim, ElementType, Kind, Layout, Mismatch, Tensor, TensorError, TensorKind};

/// One change to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adaptation {
    /// the axes of an image are put into this order
    Layout(Layout),
    /// a first axis of size 1
    Batch,
    /// the elements become this type
    Cast(ElementType),
}

/// Changes, in the order in which they are made.
pub type Adaptations = SmallVec<[Adaptation; 3]>;

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => write!(f, "layout to {layout}"),
            Self::Batch => f.write_str("add a batch axis"),
            Self::Cast(element) => write!(f, "cast to {element}"),
        }
    }
}

/// The changes from a tensor of kind `given` to one of kind `wanted`. The plan's check and every run
/// call this; open dimensions (`None`, [`Dim::Dynamic`]) match anything.
pub(super) fn plan_adaptations(given: &TensorKind, wanted: &TensorKind) -> Result<Adaptations, Mismatch> {
    let mismatch = |because: String| Mismatch {
        expected: Kind::Tensor(wanted.clone()),
        given: Kind::Tensor(given.clone()),
        because: Some(because),
    };
    let cast = cast(given, wanted).map_err(mismatch)?;
    let mut adaptations = axes(given, wanted).map_err(mismatch)?;
    adaptations.extend(cast.map(Adaptation::Cast));
    Ok(adaptations)
}

/// The cast that keeps the meaning of the numbers, if one is needed.
fn cast(given: &TensorKind, wanted: &TensorKind) -> Result<Option<ElementType>, String> {
    if !given.elements.intersection(wanted.elements).is_empty() {
        return Ok(None);
    }
    let refused = || {
        let to = wanted.elements;
        format!("the element type is {}, not {to}, and a conversion could lose what the numbers mean", given.elements)
    };
    let to = wanted.element().ok_or_else(refused)?;
    if given.elements.iter().all(|from| keeps_meaning(from, to)) { Ok(Some(to)) } else { Err(refused()) }
}

fn keeps_meaning(from: ElementType, to: ElementType) -> bool {
    use ElementType::{Bool, Float32, Float64, Int8, Int16, Int32, Int64, String, Uint8, Uint16, Uint32, Uint64};
    match (from, to) {
        (Bool | String, _) | (_, Bool | String) => false,
        (from, to) if to.is_float() => from.is_float() || matches!(to, Float32 | Float64) || from.size() == Some(1),
        (from, _) if from.is_float() => false,
        (Uint8 | Int8 | Uint16 | Int16 | Uint32 | Int32, Int64)
        | (Uint8 | Int8 | Uint16 | Int16, Int32)
        | (Uint8 | Int8, Int16)
        | (Uint8 | Uint16 | Uint32, Uint64)
        | (Uint8 | Uint16, Uint32)
        | (Uint8, Uint16) => true,
        _ => false,
    }
}

fn axes(given: &TensorKind, wanted: &TensorKind) -> Result<Adaptations, String> {
    let mut adaptations = Adaptations::new();
    let (Some(from), Some(to)) = (&given.shape, &wanted.shape) else { return Ok(adaptations) };

    let batch = to.len() == from.len() + 1 && matches!(to[0], Dim::Fixed(1) | Dim::Dynamic | Dim::Named(_));
    if to.len() != from.len() && !batch {
        let advice = if from.len() == to.len() + 1 { "; drop its first axis if it is a batch of one" } else { "" };
        return Err(format!("it has {} axes, not {}{advice}", from.len(), to.len()));
    }

    let fault = |dims: &[Dim]| fault(dims, &to[usize::from(batch)..]);
    let mut shape: SmallVec<[Dim; 4]> = from.iter().cloned().collect();
    if let (Some(layout), 3..=4, 3..=4) = (given.layout, from.len(), to.len()) {
        let other = if layout == Layout::Hwc { Layout::Chw } else { Layout::Hwc };
        let mut moved = shape.clone();
        move_channels(&mut moved, other);
        let image = &to[to.len() - 3..];

        let change = match (asked_layout(image), fault(&shape), fault(&moved)) {
            (Some(asked), _, _) => asked != layout,
            (None, None, Some(_)) => false,
            (None, Some(_), None) => true,
            // Neither order fits: the error below names the axis of the order it came in.
            (None, Some(_), Some(_)) => false,
            (None, None, None) => match evidence(&moved, image).cmp(&evidence(&shape, image)) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal => {
                    return Err(format!(
                        "the model does not say whether it takes {layout} or {other}; export it with a fixed number \
                         of channels"
                    ));
                }
            },
        };
        if change {
            adaptations.push(Adaptation::Layout(other));
            shape = moved;
        }
    }

    if let Some((axis, given, wanted)) = fault(&shape) {
        let after = if adaptations.is_empty() { String::new() } else { format!(" after {}", adaptations[0]) };
        return Err(format!("axis {axis} is {given}, not {wanted}{after}"));
    }
    if batch {
        adaptations.push(Adaptation::Batch);
    }
    Ok(adaptations)
}

/// The first axis whose size does not fit: its index, its size, and the expected size.
fn fault(given: &[Dim], wanted: &[Dim]) -> Option<(usize, usize, usize)> {
    given.iter().zip(wanted).enumerate().find_map(|(axis, dims)| match dims {
        (Dim::Fixed(given), Dim::Fixed(wanted)) if given != wanted => Some((axis, *given, *wanted)),
        _ => None,
    })
}

/// Axes of the image that are known on both sides, and equal.
fn evidence(given: &[Dim], image: &[Dim]) -> usize {
    let last = &given[given.len() - 3..];
    last.iter().zip(image).filter(|dims| matches!(dims, (Dim::Fixed(a), Dim::Fixed(b)) if a == b)).count()
}

/// The layout that a model's own dimensions tell: the channels are the axis of 1, 3 or 4.
fn asked_layout(image: &[Dim]) -> Option<Layout> {
    let channels = |dim: &Dim| matches!(dim, Dim::Fixed(1 | 3 | 4));
    match (channels(&image[0]), channels(&image[2])) {
        (true, false) => Some(Layout::Chw),
        (false, true) => Some(Layout::Hwc),
        _ => None,
    }
}

/// Moves the channels, in the last three axes, to where `to` has them.
pub(super) fn move_channels<T>(dims: &mut [T], to: Layout) {
    let start = dims.len() - 3;
    match to {
        Layout::Chw => dims[start..].rotate_right(1),
        Layout::Hwc => dims[start..].rotate_left(1),
    }
}

/// Makes the changes, unless that is stopped.
pub(super) fn apply(
    mut tensor: Tensor,
    adaptations: &[Adaptation],
    who: &dyn CancelCheck,
) -> Result<Tensor, TensorError> {
    for adaptation in adaptations {
        tensor = match adaptation {
            Adaptation::Layout(layout) => change_layout(tensor, *layout, who)?,
            Adaptation::Batch => {
                let mut shape = Vec::with_capacity(tensor.rank() + 1);
                shape.push(1);
                shape.extend_from_slice(tensor.shape());
                tensor.reshape(shape)?
            }
            Adaptation::Cast(element) => tensor.cast_cancellable(*element, who)?,
        };
    }
    Ok(tensor)
}

fn change_layout(tensor: Tensor, to: Layout, who: &dyn CancelCheck) -> Result<Tensor, TensorError> {
    let mut metadata = tensor.metadata;
    metadata.layout = Some(to);
    let mut shape = tensor.shape().to_vec();
    let [.., first, second, third] = shape[..] else { return Ok(tensor) };
    let (pixels, channels) = match to {
        Layout::Chw => (first.checked_mul(second), third),
        Layout::Hwc => (second.checked_mul(third), first),
    };
    // One channel, or one pixel: the same numbers in the same order.
    if pixels == Some(1) || channels == 1 {
        move_channels(&mut shape, to);
        return Ok(tensor.reshape(shape)?.with_metadata(metadata));
    }
    let mut axes: Vec<_> = (0..tensor.rank()).collect();
    move_channels(&mut axes, to);
    Ok(tensor.permute_cancellable(&axes, who)?.with_metadata(metadata))
}

#[cfg(test)]
mod tests;
