//! `warp`: an image and points in it → the image with these points at given places.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::affine::Interpolation;
use super::dims::{ImageDims, Size, check_limits};
use super::geometry::update_transform;
use super::point_fit::{self, Point};
use super::points;
use super::remap::Remap;
use super::rotate::{apply_orientation, quarter_turn};
use super::window::{BorderMode, FillValue};
use crate::deadline::Deadline;
use crate::homography::Homography;
use crate::operation::{BuiltinStep, Inputs, Operation, known_tensor};
use crate::ports;
use gpux_core::with_elements;
use gpux_core::{
    BuildError, Builtin, ElementSet, ElementType, Group, Kind, Layout, Mismatch, Port, Signature, StepFailure, Tensor,
    TensorKind, Value,
};

/// Left eye, right eye, nose, left and right corner of the mouth in an image of 112 × 112 pixels, as ArcFace's models
/// expect them (`insightface.utils.face_align`).
const ARCFACE: [Point; 5] =
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]];

/// Height and width that the places of [`ARCFACE`] are in.
const ARCFACE_SIDE: f64 = 112.0;

/// Options of `warp`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// How the points are brought to their places: `perspective` (four points), `affine` (three), or `similarity` (two
    /// or more: rotation, scale and translation by least squares). Default: `similarity` with a `template`; else what
    /// the number of points asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<MapKind>,
    /// `[height, width]` of the result in pixels, one number for both, or `box`: the longer of the edges that face
    /// each other, as PaddleOCR cuts out a line of text. Default: `box`; 112 with `template: arcface`; required with
    /// another template.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<WarpSize>,
    /// Where the points go: `arcface` (five landmarks of a face), or a list of `[x, y]` in pixels of the result.
    /// Default: four points are its corners from the top left clockwise, three the first of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<Template>,
    /// The image whose pixels the points are in: `image` (default), the one given; or `source`, the one that it was
    /// made of by steps before, such as `resize`.
    points: PointSpace,
    /// A result that is at least this many times as high as wide is turned by 90° counter-clockwise; PaddleOCR has
    /// 1.5. Default: none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1000.0))]
    rotate_tall: Option<f64>,
    /// How pixels are found between others: `nearest`, `bilinear` (default) or `bicubic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<Interpolation>,
    /// What lies around the image: `constant` (default; see `fill`), `edge` (the nearest pixel), `reflect` (mirrored,
    /// without the edge itself) or `symmetric` (mirrored, with it).
    border: BorderMode,
    /// What a constant border holds: one number, or one for each channel. Default: 0.
    fill: FillValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum MapKind {
    Perspective,
    Affine,
    Similarity,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum WarpSize {
    Fixed(Size),
    OfPoints(BoxWord),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum BoxWord {
    Box,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Template {
    Named(TemplateName),
    Points(#[schemars(length(min = 2, max = 1000))] Vec<[f64; 2]>),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum TemplateName {
    Arcface,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum PointSpace {
    #[default]
    Image,
    Source,
}

/// Warps an image so that points in it come to given places. Coordinates of points count from the centre of the first
/// pixel, as OpenCV's do.
///
/// Follows OpenCV 5: `warpPerspective` with `getPerspectiveTransform`, `warpAffine` with `getAffineTransform`. The way
/// back to the source becomes the image's transform.
struct Warp {
    options: Options,
    /// height and width, where they do not depend on the points
    size: Option<[usize; 2]>,
    /// where the points go, unless to the corners
    template: Option<Vec<Point>>,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "warp",
        summary: "Cuts out and straightens what lies between points: lines of text, faces",
        group: Group::Image,
        follows: "OpenCV: cv2.warpPerspective, cv2.warpAffine (scikit-image: SimilarityTransform)",
        example: "warp: { size: box, filter: bicubic, border: edge }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(Warp::step(ports::options(options)?)?)),
    }
}

/// What is made: its size before it is turned, the map from its pixel centres to the image's, and whether it is turned.
struct Target {
    height: usize,
    width: usize,
    back: Homography,
    is_turned: bool,
}

impl Warp {
    fn step(options: Options) -> Result<BuiltinStep<Self>, BuildError> {
        let template = match &options.template {
            Some(Template::Named(TemplateName::Arcface)) => Some(ARCFACE.to_vec()),
            Some(Template::Points(points)) => Some(points.clone()),
            None => None,
        };
        let size = match (options.size, &options.template) {
            (Some(WarpSize::Fixed(size)), _) => Some(size.height_width()),
            (None, Some(Template::Named(TemplateName::Arcface))) => Some([ARCFACE_SIDE as usize; 2]),
            (_, None) => None,
            (_, Some(_)) => {
                let message = "with a `template`, the size of the result is fixed";
                return Err(BuildError::option("size", message).with_hint("for example `size: [112, 112]`"));
            }
        };
        if let Some([height, width]) = size {
            check_limits(height, width).map_err(|message| BuildError::option("size", message))?;
        }
        Self::check(&options, template.as_deref())?;

        let elements = ElementSet::of(&[ElementType::Uint8, ElementType::Float32]);
        let image = |height, width| Kind::Tensor(TensorKind::image(elements, height, width, None));
        let made = size
            .map(|[height, width]| if options.is_turned([height, width]) { [width, height] } else { [height, width] });
        let signature = Signature {
            inputs: vec![
                Port {
                    description: "height × width × channels, any number of channels".into(),
                    ..Port::new("image", image(None, None))
                },
                Port { description: points::DESCRIPTION.into(), ..Port::new("points", Kind::Any) },
            ],
            outputs: vec![Port {
                description: "the image with the points at their places".into(),
                ..Port::new("image", image(made.map(|size| size[0]), made.map(|size| size[1])))
            }],
        };
        let details = json!(options);
        let template = template.map(|template| options.scaled(template, size));
        Ok(BuiltinStep::new(signature, details, Self { options, size, template }))
    }

    /// Errors of options that do not fit each other.
    fn check(options: &Options, template: Option<&[Point]>) -> Result<(), BuildError> {
        if let Some(points) = template {
            if !points.iter().flatten().all(|number| (-1e6..=1e6).contains(number)) {
                return Err(BuildError::option("template", "a place of the template is not within 1000000 pixels"));
            }
            let count = points.len();
            let wanted = options.map.unwrap_or(MapKind::Similarity).fixed_points();
            if let Some(wanted) = wanted.filter(|wanted| *wanted != count) {
                let message = format!("the template has {count} points, but this map takes {wanted}");
                return Err(BuildError::option("template", message).with_hint("`map: similarity` takes any number"));
            }
        } else if options.map == Some(MapKind::Similarity) {
            return Err(BuildError::option("map", "`similarity` needs to know where the points go")
                .with_hint("name them by `template`, such as `template: arcface`"));
        }
        if options.border != BorderMode::Constant && options.fill != FillValue::default() {
            return Err(BuildError::option("fill", "`fill` is for `border: constant` only"));
        }
        Ok(())
    }

    /// The places for `points` in an image of this size, and the map to them.
    fn fit(&self, points: &[Point], [height, width]: [usize; 2]) -> Result<Homography, String> {
        let [right, bottom] = [width as f64, height as f64];
        let corners = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
        let kind = self.options.map.or_else(|| self.template.as_ref().map(|_| MapKind::Similarity));
        let kind = match (kind, points.len()) {
            (Some(kind), _) => kind,
            (None, 4) => MapKind::Perspective,
            (None, 3) => MapKind::Affine,
            (None, count) => {
                let hint = "for more landmarks say by `template` where they go";
                return Err(format!("there are {count} points; four are the corners, three the first of them; {hint}"));
            }
        };
        let wanted = kind.fixed_points().or_else(|| self.template.as_ref().map(Vec::len)).unwrap_or(corners.len());
        if points.len() != wanted {
            return Err(format!("there are {} points, but {wanted} are needed", points.len()));
        }
        let places = self.template.as_deref().unwrap_or(&corners[..wanted.min(4)]);
        let map = match kind {
            MapKind::Perspective => perspective(points, places),
            MapKind::Affine => affine(points, places),
            MapKind::Similarity => point_fit::similarity(points, places),
        };
        map.ok_or_else(|| "the points lie on a line, or on each other, so that no map brings them apart".to_owned())
    }

    /// Height and width of what lies between the points.
    fn size_of(points: &[Point]) -> Result<[usize; 2], String> {
        let edge = |a: usize, b: usize| match (points.get(a), points.get(b)) {
            (Some([x0, y0]), Some([x1, y1])) => (x0 - x1).hypot(y0 - y1),
            _ => 0.0,
        };
        // Both edges are rounded down, as PaddleOCR does.
        let width = edge(0, 1).max(edge(2, 3)) as usize;
        let height = edge(1, 2).max(if points.len() > 3 { edge(0, 3) } else { 0.0 }) as usize;
        if width == 0 || height == 0 {
            return Err(format!("the points span {height} × {width} pixels, which is no image"));
        }
        Ok([height, width])
    }

    fn target(&self, tensor: &Tensor, dims: ImageDims, points: &Value) -> Result<Target, StepFailure> {
        let invalid = |why: String| StepFailure::InvalidInput(format!("warp: {why}"));
        let mut points = points::read(points)?;
        if self.options.points == PointSpace::Source
            && let Some(back) = Homography::to_source(&tensor.metadata)
        {
            let here = back.inverse().ok_or_else(|| invalid("the image's way to its source has no inverse".into()))?;
            for point in &mut points {
                *point = here.apply(*point);
            }
        }

        let [height, width] = self.size.map_or_else(|| Self::size_of(&points), Ok).map_err(invalid)?;
        check_limits(height, width).map_err(invalid)?;
        ImageDims { height, width, ..dims }.check_samples().map_err(invalid)?;
        let map = self.fit(&points, [height, width]).map_err(invalid)?;
        let back = map.inverse().ok_or_else(|| invalid("the points lie on a line".into()))?;
        let is_turned = self.options.is_turned([height, width]);
        Ok(Target { height, width, back, is_turned })
    }
}

fn perspective(from: &[Point], to: &[Point]) -> Option<Homography> {
    point_fit::perspective(from.try_into().ok()?, to.try_into().ok()?)
}

fn affine(from: &[Point], to: &[Point]) -> Option<Homography> {
    point_fit::affine(from.try_into().ok()?, to.try_into().ok()?)
}

impl MapKind {
    /// How many points it takes, if that is fixed.
    const fn fixed_points(self) -> Option<usize> {
        match self {
            Self::Perspective => Some(4),
            Self::Affine => Some(3),
            Self::Similarity => None,
        }
    }
}

impl Options {
    /// Whether a result of this size is turned.
    fn is_turned(&self, [height, width]: [usize; 2]) -> bool {
        self.rotate_tall.is_some_and(|ratio| height as f64 / width as f64 >= ratio)
    }

    /// The places of a template in a result of this size.
    fn scaled(&self, template: Vec<Point>, size: Option<[usize; 2]>) -> Vec<Point> {
        let (Some(Template::Named(TemplateName::Arcface)), Some([height, width])) = (&self.template, size) else {
            return template;
        };
        // As `insightface.utils.face_align.estimate_norm`: sizes that are no multiple of 112 leave more room aside.
        let side = height.min(width);
        let (scale, aside) = if side % 112 == 0 {
            (side as f64 / ARCFACE_SIDE, 0.0)
        } else {
            let scale = side as f64 / 128.0;
            (scale, 8.0 * scale)
        };
        template.into_iter().map(|[x, y]| [x * scale + aside, y * scale]).collect()
    }
}

impl Operation for Warp {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        if let Some(Some(given)) = inputs.get(1) {
            points::accepts(given)?;
        }
        let mut image = match &signature.outputs[0].kind {
            Kind::Tensor(kind) => kind.clone(),
            _ => TensorKind::of_elements(ElementSet::ANY),
        };
        if let Some(given) = known_tensor(inputs) {
            image.elements = image.elements.intersection(given.elements);
            let channels = given.shape.as_ref().and_then(|shape| shape.get(2));
            if let (Some(shape), Some(channels)) = (&mut image.shape, channels) {
                shape[2] = channels.clone();
            }
        }
        Ok(vec![Kind::Tensor(image)])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        let target = || {
            let tensor = ports::given_tensor(inputs)?;
            let dims = ImageDims::with_any_channels(tensor).ok()?;
            let target = self.target(tensor, dims, inputs.get(1)?.as_ref()?).ok()?;
            let sample = tensor.element().size().unwrap_or(1);
            let bytes = target.height * target.width * dims.channels * sample;
            Some(if target.is_turned { 2 * bytes } else { bytes })
        };
        target().unwrap_or(0).saturating_add(1 << 16)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let tensor = inputs.tensor()?;
        let points = inputs.named()?.1;
        let dims = ImageDims::with_any_channels(&tensor)?;
        self.options.fill.check(dims.channels).map_err(StepFailure::InvalidInput)?;
        let target = self.target(&tensor, dims, &points)?;
        let Target { height, width, back, is_turned } = target;

        let mut metadata = tensor.metadata;
        metadata.layout = Some(Layout::Hwc);
        metadata = update_transform(metadata, back.with_pixel_edges());
        let warped = ImageDims { height, width, ..dims };
        let filter = self.options.filter.unwrap_or(Interpolation::Bilinear);
        let remap = Remap { back, filter, border: self.options.border, fill: &self.options.fill };
        let mut result = remap.apply(&tensor, dims, warped, deadline)?;
        drop(tensor);

        if is_turned {
            let turned = ImageDims { height: width, width: height, ..dims };
            metadata = update_transform(metadata, quarter_turn(warped, 1));
            result = with_elements!(result.data(), data => apply_orientation(data, warped, turned, 1, deadline))?;
        }
        Ok(vec![result.with_metadata(metadata).into()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference::{build, run, step};
    use gpux_core::{Context, Dim};

    fn image(height: usize, width: usize) -> Tensor {
        let levels = (0..height * width).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        Tensor::new([height, width, 1], levels).unwrap()
    }

    fn warped(options: serde_json::Value, image: Tensor, points: serde_json::Value) -> Tensor {
        run(&*step("warp", options), vec![image.into(), points.into()]).remove(0).as_tensor().unwrap().clone()
    }

    fn assert_near(ours: [f64; 2], expected: [f64; 2]) {
        let far = (ours[0] - expected[0]).abs().max((ours[1] - expected[1]).abs());
        assert!(far < 1e-6, "{ours:?} is not {expected:?}");
    }

    #[test]
    fn cuts_out_pixels() {
        let cut = warped(json!({}), image(6, 8), json!([[2, 1], [6, 1], [6, 4], [2, 4]]));
        assert_eq!(cut.shape(), [3, 4, 1]);
        assert_eq!(cut.as_slice::<u8>().unwrap(), [10, 11, 12, 13, 18, 19, 20, 21, 26, 27, 28, 29]);
        let tall = warped(json!({"rotate_tall": 1.5}), image(6, 8), json!([[2, 1], [4, 1], [4, 4], [2, 4]]));
        assert_eq!(tall.shape(), [2, 3, 1]);
        assert_eq!(tall.as_slice::<u8>().unwrap(), [11, 19, 27, 10, 18, 26]);
    }

    #[test]
    fn transform_maps_points_to_the_source() {
        let resized = run(&*step("resize", json!({"size": [30, 80]})), vec![image(60, 40).into()]).remove(0);
        let resized = resized.as_tensor().unwrap().clone();
        let corners = json!([[10, 20], [30, 22], [31, 50], [9, 48]]);
        let cut = warped(json!({"points": "source", "rotate_tall": 1.0}), resized, corners);
        assert_eq!(cut.metadata.geometry, None);
        let &[height, width, _] = cut.shape() else { panic!() };
        // The corners of the box are the points; a turned box has its second point at the top left. Half a pixel of
        // the warped image is none of the source's.
        let back = Homography::to_source(&cut.metadata).unwrap();
        let at = |x: f64, y: f64| back.apply([x + 0.5, y + 0.5]);
        let source = |x: f64, y: f64| [x + 0.25, y + 1.0];
        assert_near(at(0.0, 0.0), source(10.0, 20.0));
        assert_near(at(width as f64, 0.0), source(30.0, 22.0));
        assert_near(at(width as f64, height as f64), source(31.0, 50.0));
    }

    #[test]
    fn rejects_invalid_options() {
        for (options, expected) in [
            (json!({"size": 0}), "0"),
            (json!({"size": "whole"}), "whole"),
            (json!({"size": [100_000, 100_000]}), "too much"),
            (json!({"template": [[0, 0], [1, 1]]}), "the size of the result is fixed"),
            (json!({"template": "arcface", "size": "box"}), "the size of the result is fixed"),
            (json!({"template": "arcface", "map": "affine"}), "5 points, but this map takes 3"),
            (json!({"template": [[0, 0], [1, 1e300]], "size": 9}), "1000000"),
            (json!({"map": "similarity"}), "where the points go"),
            (json!({"border": "edge", "fill": 3}), "`border: constant` only"),
            (json!({"rotate_tall": 0.5}), "0.5"),
        ] {
            let error = build(builtin(), options.clone()).err().unwrap_or_else(|| panic!("{options}"));
            assert!(error.message.contains(expected), "{options}: {}", error.message);
        }
    }

    #[test]
    fn rejects_invalid_points() {
        let refused = |options, points: serde_json::Value| {
            let inputs = vec![Some(image(6, 8).into()), Some(points.into())];
            match step("warp", options).run(inputs, &mut Context::default()) {
                Err(StepFailure::InvalidInput(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        assert!(refused(json!({}), json!([[0, 0], [0, 0], [0, 0], [0, 0]])).contains("span 0 × 0"));
        assert!(refused(json!({}), json!([[0, 0], [5, 5], [9, 9], [13, 13]])).contains("lie on a line"));
        assert!(refused(json!({"size": 4}), json!([[0, 0], [5, 5], [9, 9]])).contains("lie on a line"));
        assert!(refused(json!({"size": 4}), json!([[0, 0], [5, 5]])).contains("2 points"));
        assert!(refused(json!({"map": "perspective"}), json!([[0, 0], [5, 5], [9, 0]])).contains("4 are needed"));
        assert!(refused(json!({"template": "arcface"}), json!([[0, 0], [5, 5]])).contains("5 are needed"));
        assert!(refused(json!({}), json!([[0, 0], [1e6, 0], [1e6, 1e6], [0, 1e6]])).contains("too much"));
        assert!(refused(json!({"fill": [1, 2]}), json!([[0, 0], [5, 0], [5, 5]])).contains("`fill` lists 2"));
    }

    #[test]
    fn infers_size() {
        let infer = |options, points| {
            let kind = TensorKind::shaped(ElementType::Uint8, [Dim::Fixed(10), Dim::Fixed(20), Dim::Fixed(3)]);
            let given = [Some(Kind::Tensor(kind)), Some(points)];
            step("warp", options).infer(&given).map(|kinds| kinds[0].to_string()).map_err(|why| why.to_string())
        };
        assert_eq!(infer(json!({}), Kind::Json).unwrap(), "tensor uint8[?, ?, 3] HWC");
        assert_eq!(infer(json!({"size": [8, 9]}), Kind::Json).unwrap(), "tensor uint8[8, 9, 3] HWC");
        let turned = json!({"size": [9, 3], "rotate_tall": 1.5});
        assert_eq!(infer(turned, Kind::Json).unwrap(), "tensor uint8[3, 9, 3] HWC");
        assert!(infer(json!({}), Kind::Text).unwrap_err().contains("points are a JSON list"));
    }
}
