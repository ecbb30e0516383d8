//! The boxes of `find-boxes` beside those of RapidOCR.

use serde_json::Value as Json;

use gpux_core::{ElementType, Geometry, Layout, Metadata, Tensor};

/// A picture of this height and width that was made of one of the size `source`, height first.
pub(crate) fn resized([height, width]: [usize; 2], source: [usize; 2]) -> Tensor {
    let [source_height, source_width] = source.map(|side| side as u32);
    let geometry = Geometry {
        source_width,
        source_height,
        scale_x: width as f32 / source_width as f32,
        scale_y: height as f32 / source_height as f32,
        offset_x: 0.0,
        offset_y: 0.0,
    };
    let metadata = Metadata { geometry: Some(geometry), layout: Some(Layout::Hwc), ..Metadata::default() };
    Tensor::zeros(ElementType::Uint8, [height, width, 3]).unwrap().with_metadata(metadata)
}

fn points(found: &Json) -> Vec<[f64; 2]> {
    serde_json::from_value(found["points"].clone()).unwrap()
}

/// Whether edges of a quadrilateral cross or lie on each other: RapidOCR so orders corners of the same height.
fn crosses_itself(corners: &[[f64; 2]]) -> bool {
    (0..4).any(|at| {
        let [a, b, c] = [0, 1, 2].map(|next| corners[(at + next) % 4]);
        (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0]) <= 0.0
    })
}

/// For each box: how far its corners moved at most, and its score. The error says why the lists cannot be compared.
pub(crate) fn differences(ours: &Json, theirs: &Json) -> Result<Vec<(f64, f64)>, String> {
    let (found, expected) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
    if found.len() != expected.len() {
        return Err(format!("{} boxes for {}: {ours} for {theirs}", found.len(), expected.len()));
    }
    let pairs = found.iter().zip(expected);
    let differences = pairs.map(|(ours, theirs)| {
        let (mut our_points, mut their_points) = (points(ours), points(theirs));
        if crosses_itself(&their_points) {
            our_points.sort_by(|a, b| a.partial_cmp(b).unwrap());
            their_points.sort_by(|a, b| a.partial_cmp(b).unwrap());
        }
        let pairs = our_points.as_flattened().iter().zip(their_points.as_flattened());
        let moved = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        (moved, (ours["score"].as_f64().unwrap() - theirs["score"].as_f64().unwrap()).abs())
    });
    Ok(differences.collect())
}
