//! The numbers of an anchor after its classes: keypoints, mask coefficients, an angle.

use serde_json::{Map, Value as Json, json};

use super::box_mapping::BoxMapping;
use super::oriented::OrientedBox;
use gpux_core::float32_to_json;

/// Most keypoints, or mask coefficients.
const MOST: usize = 1024;

/// Bytes that a number takes in the answer, in a list of two or three.
const NUMBER: usize = 96;

/// What follows the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Nothing,
    /// so many points, of x, y and perhaps how visible it is
    Keypoints([usize; 2]),
    MaskCoefficients(usize),
    /// in radians, how far the box is turned around its centre
    Angle,
}

impl Extra {
    pub(super) fn new(
        keypoints: Option<[usize; 2]>,
        mask_coefficients: Option<usize>,
        angle: bool,
    ) -> Result<Self, (&'static str, String)> {
        let within = |option: &'static str, count: usize| match count {
            1..=MOST => Ok(()),
            _ => Err((option, format!("must be from 1 to {MOST}"))),
        };
        match (keypoints, mask_coefficients, angle) {
            (None, None, false) => Ok(Self::Nothing),
            (Some([count, size @ 2..=3]), None, false) => {
                within("keypoints", count).map(|()| Self::Keypoints([count, size]))
            }
            (Some(_), None, false) => {
                Err(("keypoints", "is [how many, 2 or 3]: x and y, or also how visible the point is".into()))
            }
            (None, Some(count), false) => within("mask_coefficients", count).map(|()| Self::MaskCoefficients(count)),
            (None, None, true) => Ok(Self::Angle),
            (Some(_), ..) => Err(("keypoints", "excludes `mask_coefficients` and `angle`".into())),
            (None, ..) => Err(("mask_coefficients", "excludes `angle`".into())),
        }
    }

    /// How many numbers of an anchor they are.
    pub(super) const fn width(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Keypoints([count, size]) => count * size,
            Self::MaskCoefficients(count) => count,
            Self::Angle => 1,
        }
    }

    /// Bytes that they take in the answer.
    pub(super) const fn bytes(self) -> usize {
        // The angle comes with the four corners.
        NUMBER * if matches!(self, Self::Angle) { 9 } else { self.width() }
    }

    /// Adds the fields of one box. Points are in the same pixels as boxes.
    pub(super) fn add_fields(
        self,
        fields: &mut Map<String, Json>,
        numbers: &[f32],
        oriented: Option<&OrientedBox>,
        place: &BoxMapping,
    ) {
        let point = |[x, y]: [f32; 2]| json!([float32_to_json(x), float32_to_json(y)]);
        match self {
            Self::Nothing => {}
            Self::Keypoints([_, size]) => {
                let keypoint = |numbers: &[f32]| {
                    let mut keypoint = point(place.point_to_source(place.point_pixels([numbers[0], numbers[1]])));
                    if let (Some(list), Some(visible)) = (keypoint.as_array_mut(), numbers.get(2)) {
                        list.push(float32_to_json(*visible));
                    }
                    keypoint
                };
                fields.insert("keypoints".into(), numbers.chunks_exact(size).map(keypoint).collect());
            }
            Self::MaskCoefficients(_) => {
                fields.insert("mask_coefficients".into(), numbers.iter().copied().map(float32_to_json).collect());
            }
            Self::Angle => {
                if let Some(oriented) = oriented {
                    let corners = oriented.corners().map(|corner| point(place.point_around_source(corner)));
                    fields.insert("corners".into(), corners.into_iter().collect());
                }
                fields.insert("angle".into(), numbers.first().copied().map_or(Json::Null, float32_to_json));
            }
        }
    }
}
