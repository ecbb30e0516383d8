//! Pictures, as transformers' image processors take them.

use serde_json::Value as Json;

use super::fault::HubModelFault;
use super::source::ModelSource;
use super::text::ranked_labels;
use super::yaml::StepLines;
use super::{
    HubModelRequest, ImageBackend, MakeError, Pooling, Recipe, Sample, check_inputs, has_output, labels, last_size,
    output,
};
use gpux_inference::ModelInfo;

const PREPROCESSOR: &str = "preprocessor_config.json";
const IMAGENET: Normalization = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
const HALVES: Normalization = ([0.5; 3], [0.5; 3]);
const CLIP: Normalization = ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]);

/// Mean and deviation of each channel.
type Normalization = ([f64; 3], [f64; 3]);

/// What a class of transformers 5.23 does where a file leaves it out.
struct Processor {
    name: &'static str,
    /// in pixels
    size: Size,
    /// whether one number is both sides
    square: bool,
    resample: u64,
    crop: Option<u64>,
    normalization: Normalization,
}

#[derive(Clone, Copy, PartialEq)]
enum Size {
    Shortest(u64),
    Exact(u64, u64),
}

const fn processor(
    name: &'static str,
    size: Size,
    square: bool,
    resample: u64,
    crop: Option<u64>,
    normalization: Normalization,
) -> Processor {
    Processor { name, size, square, resample, crop, normalization }
}

/// Those that have no method of their own, and ConvNeXT's.
const PROCESSORS: [Processor; 11] = [
    processor("BitImageProcessor", Size::Shortest(224), false, 3, Some(224), CLIP),
    processor("BlipImageProcessor", Size::Exact(384, 384), true, 3, None, CLIP),
    processor("CLIPImageProcessor", Size::Shortest(224), false, 3, Some(224), CLIP),
    processor("ChineseCLIPImageProcessor", Size::Shortest(224), false, 3, Some(224), CLIP),
    processor(CONVNEXT, Size::Shortest(384), false, 3, None, HALVES),
    processor("DeiTImageProcessor", Size::Exact(256, 256), true, 3, Some(224), HALVES),
    processor("MobileNetV1ImageProcessor", Size::Shortest(256), false, 2, Some(224), HALVES),
    processor("PvtImageProcessor", Size::Exact(224, 224), true, 2, None, IMAGENET),
    processor("SiglipImageProcessor", Size::Exact(224, 224), false, 3, None, HALVES),
    processor("ViTImageProcessor", Size::Exact(224, 224), true, 2, None, HALVES),
    // What is left of it where a file names the base class.
    processor("ImageProcessor", Size::Exact(224, 224), true, 2, None, HALVES),
];
/// Below a size of 384 it enlarges by `crop_pct` and cuts the middle out.
const CONVNEXT: &str = "ConvNextImageProcessor";
const CONVNEXT_CROP: f64 = 224.0 / 256.0;
const CONVNEXT_WARP: u64 = 384;

pub(super) fn classification(
    source: &mut ModelSource<'_>,
    config: &Json,
    info: &ModelInfo,
    request: &HubModelRequest<'_>,
) -> Result<Recipe, MakeError> {
    let logits = output(info, &["logits"], "`logits`")?;
    let labels = labels(config, last_size(info, logits))?;
    let mut steps = picture(source, info, request)?;
    steps.extend(ranked_labels(config, &labels, logits));
    Ok(Recipe {
        inputs: "\ninputs: { image: image }\n",
        steps,
        outputs: String::new(),
        serving: "",
        labels: Some(labels),
        sample: Sample::Picture,
        companions: Vec::new(),
    })
}

pub(super) fn embedding(
    source: &mut ModelSource<'_>,
    info: &ModelInfo,
    request: &HubModelRequest<'_>,
) -> Result<Recipe, MakeError> {
    let mut steps = picture(source, info, request)?;
    let normalize = StepLines::new("l2-normalize");
    if let Some(vector) = ["image_embeds", "pooler_output"].into_iter().find(|name| has_output(info, name)) {
        steps.push(normalize.option("in", vector));
    } else {
        let vectors = output(info, &["last_hidden_state"], "`image_embeds`, `pooler_output` or `last_hidden_state`")?;
        if request.pooling != Some(Pooling::Cls) {
            return Err(HubModelFault::NoPooling.into());
        }
        steps.push(StepLines::new("cls-pool").option("in", format!("[{vectors}]")).from("--pooling"));
        steps.push(normalize);
    }
    Ok(Recipe {
        inputs: "\ninputs: { image: image }\n",
        steps,
        outputs: String::new(),
        serving: "",
        labels: None,
        sample: Sample::Picture,
        companions: Vec::new(),
    })
}

/// The steps up to the model.
fn picture(
    source: &mut ModelSource<'_>,
    info: &ModelInfo,
    request: &HubModelRequest<'_>,
) -> Result<Vec<StepLines>, MakeError> {
    let file = source.required_json(PREPROCESSOR, "it says how pictures are prepared")?;
    check_inputs(info, &["pixel_values"], "a picture alone")?;
    let processor = Processor::of(&file)?;
    let get = |key: &str| file.get(key).filter(|value| !value.is_null());
    let from = |key: &str| match get(key) {
        Some(_) => format!("{PREPROCESSOR}: {key}"),
        None => format!("{}'s default for {key}", processor.name),
    };
    let is_on = |key: &str, default| get(key).and_then(Json::as_bool).unwrap_or(default);
    if is_on("do_pad", false) {
        return Err(fault("do_pad", &file["do_pad"], "padding of pictures is not taken over").into());
    }

    let mut steps = vec![StepLines::new("decode-image")];
    let mut crop =
        is_on("do_center_crop", processor.crop.is_some()).then(|| crop_size(&file, &processor)).transpose()?;
    if is_on("do_resize", true) {
        let (filter, library) = filter(&file, &processor, request.image_backend)?;
        let resize = StepLines::new("resize");
        let resize = match size(&file, &processor)? {
            Size::Shortest(edge) if processor.name == CONVNEXT && edge < CONVNEXT_WARP => {
                let ratio = get("crop_pct").and_then(Json::as_f64).unwrap_or(CONVNEXT_CROP);
                crop = Some((format!("{edge}"), from("size")));
                let enlarged = (edge as f64 / ratio) as u64;
                resize.sourced("size", enlarged, format!("{PREPROCESSOR}: size / crop_pct")).option("mode", "shortest")
            }
            Size::Shortest(edge) if processor.name == CONVNEXT => resize.sourced("size", edge, from("size")),
            Size::Shortest(edge) => resize.sourced("size", edge, from("size")).option("mode", "shortest"),
            Size::Exact(height, width) => resize.sourced("size", format!("[{height}, {width}]"), from("size")),
        };
        let why = match (request.image_backend, library) {
            (ImageBackend::Torch, "torch") => "as transformers 5 resizes; `pillow` is that of the versions before",
            (ImageBackend::Torch, _) => "torchvision has no such filter",
            (ImageBackend::Pillow, _) => "--image-backend pillow",
        };
        steps.push(resize.sourced("filter", filter, from("resample")).sourced("library", library, why));
    }
    if let Some((size, source)) = crop {
        let (library, why) = match request.image_backend {
            ImageBackend::Torch => ("transformers", "as transformers 5 cuts"),
            ImageBackend::Pillow => ("numpy", "--image-backend pillow"),
        };
        let crop = StepLines::new("center-crop").sourced("size", size, source);
        steps.push(crop.sourced("library", library, why));
    }

    let mut normalize = StepLines::new("normalize");
    if is_on("do_rescale", true) {
        let factor = get("rescale_factor").and_then(Json::as_f64).unwrap_or(1.0 / 255.0);
        normalize = normalize.sourced("scale", factor, from("rescale_factor"));
    }
    if is_on("do_normalize", true) {
        let (mean, std) = processor.normalization;
        normalize = normalize.sourced("mean", channels(&file, "image_mean", mean)?, from("image_mean"));
        normalize = normalize.sourced("std", channels(&file, "image_std", std)?, from("image_std"));
    }
    steps.extend([normalize, StepLines::new("model")]);
    Ok(steps)
}

fn fault(key: &str, value: &Json, why: &str) -> HubModelFault {
    HubModelFault::Value {
        file: PREPROCESSOR.to_owned(),
        key: key.to_owned(),
        value: value.to_string(),
        why: why.to_owned(),
    }
}

impl Processor {
    fn of(file: &Json) -> Result<Self, HubModelFault> {
        let key = ["image_processor_type", "feature_extractor_type"].into_iter().find(|key| file[*key].is_string());
        let Some(key) = key else {
            return Err(fault("image_processor_type", &Json::Null, "nothing says how pictures are prepared"));
        };
        let written = file[key].as_str().unwrap_or_default();
        let name =
            written.trim_end_matches("Fast").trim_end_matches("Pil").replace("FeatureExtractor", "ImageProcessor");
        let known = PROCESSORS.into_iter().find(|processor| processor.name == name);
        known.ok_or_else(|| fault(key, &file[key], "gpux does not know how this class prepares pictures"))
    }
}

fn size(file: &Json, processor: &Processor) -> Result<Size, HubModelFault> {
    let refuse = |why| Err(fault("size", &file["size"], why));
    match &file["size"] {
        Json::Null => Ok(processor.size),
        Json::Number(number) => match number.as_u64() {
            Some(edge) if processor.square => Ok(Size::Exact(edge, edge)),
            Some(edge) => Ok(Size::Shortest(edge)),
            None => refuse("it is no number of pixels"),
        },
        Json::Object(size) => {
            let side = |key: &str| size.get(key).and_then(Json::as_u64);
            match (side("height"), side("width"), side("shortest_edge"), size.len()) {
                (Some(height), Some(width), None, 2) => Ok(Size::Exact(height, width)),
                (None, None, Some(edge), 1) => Ok(Size::Shortest(edge)),
                _ => refuse("gpux takes `height` and `width`, or `shortest_edge`"),
            }
        }
        _ => refuse("gpux takes a number, `height` and `width`, or `shortest_edge`"),
    }
}

/// The size of what is cut out, and where it comes from.
fn crop_size(file: &Json, processor: &Processor) -> Result<(String, String), HubModelFault> {
    let (value, from) = (&file["crop_size"], format!("{PREPROCESSOR}: crop_size"));
    let (height, width) = (value["height"].as_u64(), value["width"].as_u64());
    match (value, height, width, processor.crop) {
        (Json::Null, _, _, Some(edge)) => Ok((edge.to_string(), format!("{}'s default for crop_size", processor.name))),
        (Json::Number(edge), ..) => Ok((edge.to_string(), from)),
        (_, Some(height), Some(width), _) => Ok((format!("[{height}, {width}]"), from)),
        _ => Err(fault("crop_size", value, "it is a number, or `height` and `width`")),
    }
}

/// The filter and the library that resize.
fn filter(
    file: &Json,
    processor: &Processor,
    backend: ImageBackend,
) -> Result<(&'static str, &'static str), HubModelFault> {
    let library = if backend == ImageBackend::Pillow { "pillow" } else { "torch" };
    match file["resample"].as_u64().unwrap_or(processor.resample) {
        0 if backend == ImageBackend::Torch => Ok(("nearest_exact", library)),
        0 => Ok(("nearest", library)),
        1 => Ok(("lanczos", "pillow")),
        2 => Ok(("bilinear", library)),
        3 => Ok(("bicubic", library)),
        4 => Ok(("area", "pillow")),
        _ => Err(fault("resample", &file["resample"], "it is the number of none of Pillow's filters")),
    }
}

/// A number for each channel.
fn channels(file: &Json, key: &str, default: [f64; 3]) -> Result<String, HubModelFault> {
    let numbers: Vec<f64> = match &file[key] {
        Json::Null => default.to_vec(),
        Json::Array(list) => list.iter().filter_map(Json::as_f64).collect(),
        value => return Err(fault(key, value, "it is a list of three numbers")),
    };
    if numbers.len() != 3 {
        return Err(fault(key, &file[key], "it is a list of three numbers"));
    }
    Ok(format!("{numbers:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_sizes_as_the_class_means_them() {
        let of = |kind: &str, value: Json| {
            let file = json!({"image_processor_type": kind, "size": value});
            size(&file, &Processor::of(&file).unwrap()).ok().map(|size| match size {
                Size::Shortest(edge) => vec![edge],
                Size::Exact(height, width) => vec![height, width],
            })
        };
        assert_eq!(of("ViTFeatureExtractor", json!(224)), Some(vec![224, 224]));
        assert_eq!(of("CLIPImageProcessorFast", json!(224)), Some(vec![224]));
        assert_eq!(of("CLIPImageProcessor", json!({"height": 3, "width": 4})), Some(vec![3, 4]));
        assert_eq!(of("ViTImageProcessor", json!({"shortest_edge": 3, "longest_edge": 4})), None);
        assert_eq!(of("BitImageProcessor", Json::Null), Some(vec![224]));
        assert!(Processor::of(&json!({"image_processor_type": "DetrImageProcessor"})).is_err());
        assert!(Processor::of(&json!({})).is_err());
    }
}
