"""Random cases for the steps that work on points, bounds, masks and files of images (`make_random.py` writes them)."""

import io

import cv2
import numpy as np
from PIL import Image
from rapidocr.ch_ppocr_det.utils import DBPostProcess, DetPreProcess
from rapidocr.ch_ppocr_rec.main import TextRecognizer
from rapidocr.utils.process_img import reduce_max_side
from skimage.transform import SimilarityTransform

import make_geometry
from make_geometry import ARCFACE, BORDERS, FILTERS, channels_last, in_lines, quadrilateral, rotate_crop, text_map, voc_palette

PILLOW = {
    "nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS, "area": Image.Resampling.BOX,
}  # fmt: skip
OPENCV = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}

# --- warp ---------------------------------------------------------------------------------------


def triangle(cases, width, height):
    """Three points whose area is not next to nothing."""
    while True:
        points = (cases.rng.uniform(-0.2, 1.2, (3, 2)) * [width, height]).round(2).astype(np.float32)
        across, down = points[1] - points[0], points[2] - points[0]
        if abs(across[0] * down[1] - across[1] * down[0]) > 0.1 * width * height:
            return points


def is_near(matrix, size, shape):
    """Whether the corners of the result lie no further from the image than that is wide and high."""
    high, wide = size
    corners = np.array([[0, 0], [wide, 0], [wide, high], [0, high]], np.float64)
    places = cv2.transform(corners[:, None], cv2.invertAffineTransform(matrix))[:, 0]
    sides = np.array(shape[1::-1])
    return bool((places > 2 - sides).all() and (places < 2 * sides - 3).all())


def similarity(cases, width, height):
    """The options, the points, where they go, and height and width of the result."""
    if cases.rng.random() < 0.5:
        side = cases.pick(112, 224, 96, 128)
        points = ARCFACE * cases.rng.uniform(0.2, 0.6) + cases.rng.normal(0, 2, (5, 2)) + cases.rng.normal(0, 9, 2)
        ratio, aside = (side / 112, 0) if side % 112 == 0 else (side / 128, 8 * side / 128)
        return {"template": "arcface", "size": side}, points, ARCFACE * ratio + [aside, 0], (side, side)
    count, size = cases.whole(2, 9), (cases.whole(4, 60), cases.whole(4, 60))
    places = (cases.rng.uniform(0, 1, (count, 2)) * size[::-1]).round(1)
    points = (places / size[::-1] * [width, height] + cases.rng.normal(0, 1, (count, 2))).round(2)
    options = {"template": places.tolist(), "size": list(size), "map": "similarity"}
    return options, points, places, size


def warp(cases, largest):
    make_geometry.RNG = cases.rng
    element = cases.pick("uint8", "uint8", "float32")
    filter, border = cases.pick(*FILTERS), cases.pick(*BORDERS)
    # OpenCV interpolates two channels of bytes in steps of 1/32.
    channels = cases.pick(1, 3, 4) if filter == "bilinear" else cases.pick(1, 2, 3, 4)
    height, width = cases.whole(8, largest), cases.whole(8, largest)
    image, given = cases.noise((height, width, channels), element)
    options = {"filter": filter, "border": border}
    flags, mode = FILTERS[filter], BORDERS[border]
    map = cases.pick("perspective", "perspective", "affine", "similarity")
    if map == "perspective":
        points = quadrilateral(width, height, cases.rng.uniform(0.02, 0.2) * min(width, height))
        points = np.roll(points, int(cases.rng.integers(4)), axis=0)
        if not cv2.isContourConvex(points):
            return
        tall = cases.pick(None, 1.5, 1.0)
        options |= {"size": "box"} | ({"rotate_tall": tall} if tall else {})
        try:
            result = rotate_crop(image, points, flags, mode, tall)
        except (cv2.error, ZeroDivisionError):
            # No pixel is left.
            return
    else:
        if map == "affine":
            size = (cases.whole(1, largest), cases.whole(1, largest))
            points = triangle(cases, width, height)
            corners = np.array([[0, 0], [size[1], 0], [size[1], size[0]]], np.float32)
            matrix = cv2.getAffineTransform(points, corners)
            options |= {"size": list(size)}
        else:
            more, points, places, size = similarity(cases, width, height)
            points = points.astype(np.float32)
            matrix = SimilarityTransform.from_estimate(points, places).params[:2]
            options |= more
        # Further away than the image is wide, OpenCV mirrors again, but takes the edge if bicubic.
        if filter == "bicubic" and border in ("reflect", "symmetric") and not is_near(matrix, size, image.shape):
            return
        fill = cases.pick(0, 114) if border == "constant" and element == "uint8" else 0
        options |= {"fill": fill} if fill else {}
        result = cv2.warpAffine(image, matrix, size[::-1], flags=flags, borderMode=mode, borderValue=(fill,) * 4)
        result = channels_last(result)
    bar = 1 if element == "uint8" else 1e-4
    # OpenCV rounds places that lie between two pixels in another precision.
    apart = 0.03 if filter == "nearest" else 0.0
    inputs = [given, {"json": points.tolist()}]
    cases.add("warp", options, inputs, result, bar, f"warp {map} {filter} {element}", apart=apart)


# --- find-boxes ---------------------------------------------------------------------------------


def find_boxes(cases, largest):
    make_geometry.RNG = cases.rng
    height, width = (int(side) for side in cases.rng.integers(20, 2 * largest, 2))
    levels = text_map(height, width, int(cases.rng.integers(60)))
    draw = lambda low, high: round(float(cases.rng.uniform(low, high)), 2)
    options = {}
    if cases.rng.random() < 0.7:
        options = {
            "threshold": draw(0.1, 0.7), "box_threshold": draw(0.2, 0.8), "unclip_ratio": draw(1, 3),
            "dilation": cases.pick(True, False), "score_mode": cases.pick("slow", "fast"),
            "max_candidates": cases.pick(1000, 1000, 1000, 5),
        }  # fmt: skip
    # Boxes that become a pixel high have corners at the same height, whose order RapidOCR leaves to chance.
    source = cases.pick([height, width], [int(side * cases.rng.uniform(0.7, 3)) for side in (height, width)])
    process = DBPostProcess(
        options.get("threshold", 0.3), options.get("box_threshold", 0.5), options.get("max_candidates", 1000),
        options.get("unclip_ratio", 1.6), options.get("score_mode", "fast"), options.get("dilation", False),
    )  # fmt: skip
    boxes, scores = process((levels.astype(np.float32) / np.float32(255))[None, None], source)
    expected = in_lines(boxes, scores) if len(boxes) else []
    inputs = [cases.levels(levels), {"size": [height, width], "source": source}]
    name = f"find-boxes {options.get('score_mode', 'fast')}{' dilated' if options.get('dilation') else ''}"
    cases.add_json("find-boxes", options, inputs, {"boxes": expected}, name)


# --- resize within bounds -----------------------------------------------------------------------


def bounds(cases, height, width, largest):
    """Options of `resize`, and height and width of its result by RapidOCR; None if no pixel is left."""
    image = np.zeros((height, width, 1), np.uint8)
    limit = cases.whole(8, 2 * largest)
    way = cases.pick("min", "max", "within", "line", "both", "multiple")
    if way in ("min", "max"):
        resized = DetPreProcess(limit, way).resize(image)
        options = {f"{way}_edge": limit, "multiple_of": 32}
        return None if resized is None else (options, resized.shape[:2])
    if way == "within":
        options = {"max_edge": limit, "multiple_of": 32, "keep_within": True}
        if max(height, width) <= limit:
            return options, (height, width)
        try:
            resized, *_ = reduce_max_side(image, limit)
        except Exception:
            return None
        return options, resized.shape[:2]
    if way == "line":
        high, wide = cases.pick((48, 320), (32, 100))
        reader = TextRecognizer.__new__(TextRecognizer)
        reader.rec_image_shape = [3, high, wide]
        line = reader.resize_norm_img(np.full((height, width, 3), 255, np.uint8), max(wide / high, width / height))
        return {"size": [high, wide], "mode": "line"}, (high, int(np.flatnonzero(line[0, 0])[-1]) + 1)
    multiple = cases.pick(2, 8, 14)
    options = {"multiple_of": multiple}
    sides = [height, width]
    if way == "both":
        least, most = limit, limit + cases.whole(1, largest)
        options |= {"min_edge": least, "max_edge": most}
        # Rounded down, as PaddleOCR does.
        scaled = lambda bound, edge: [bound if side == edge else max(int(side * (bound / edge)), 1) for side in (height, width)]
        if min(sides) < least:
            sides = scaled(least, min(height, width))
        if max(sides) > most:
            sides = scaled(most, max(height, width))
    return options, tuple(max(round(side / multiple), 1) * multiple for side in sides)


def bounded(cases, largest):
    height, width = cases.whole(1, largest), cases.whole(1, largest)
    found = bounds(cases, height, width, largest)
    if found is None or max(found[1]) > 4 * largest + 320:
        return
    options, size = found
    element = cases.pick("uint8", "float32")
    channels = cases.pick(1, 3) if element == "uint8" else cases.pick(1, 2, 3, 4, 5, 8, 17)
    image, given = cases.noise((height, width, channels), element)
    library = cases.pick("pillow", "opencv")
    if library == "pillow":
        filter = cases.pick(*PILLOW)
        bands = [Image.fromarray(image[..., band]).resize(size[::-1], PILLOW[filter]) for band in range(channels)]
        result = np.stack(bands, -1)
        bar = 0 if element == "uint8" or filter == "nearest" else 2e-6
    else:
        filter = cases.pick(*OPENCV)
        result = cv2.resize(image, size[::-1], interpolation=OPENCV[filter]).reshape(*size, channels)
        bar = 0 if filter == "nearest" else 1 if element == "uint8" else 1e-5
    options |= {"library": library, "filter": filter}
    way = " ".join(key for key in ("min_edge", "max_edge", "multiple_of", "mode") if key in options)
    cases.add("resize", options, given, result, bar, f"resize {way}, {element}")


def square(cases, largest):
    element = cases.pick("uint8", "float32")
    channels = cases.pick(1, 2, 3, 4) if element == "uint8" else cases.pick(1, 3, 6)
    height, width = cases.whole(1, largest), cases.whole(1, largest)
    image, given = cases.noise((height, width, channels), element)
    mode = cases.pick("constant", "edge", "reflect", "symmetric")
    options = {"square": True, "mode": mode, "position": cases.pick("top-left", "center")}
    side = max(height, width)
    before = [(side - length) // 2 if options["position"] == "center" else 0 for length in (height, width)]
    pads = [(first, side - length - first) for first, length in zip(before, (height, width))]
    fill = cases.pick(0, 1, 114) if mode == "constant" else 0
    options |= {"fill": fill} if fill else {}
    result = np.pad(image, [*pads, (0, 0)], mode, **({"constant_values": fill} if mode == "constant" else {}))
    cases.add("pad", options, given, result, name=f"pad square {mode}")


# --- files and masks ----------------------------------------------------------------------------


def encode_image(cases, largest):
    """What the file of `encode-image` holds, read by `decode-image`."""
    format = cases.pick("png", "png", "webp", "jpeg")
    channels = cases.pick(1, 3) if format == "jpeg" else cases.pick(1, 3, 4)
    image, given = cases.noise((cases.whole(1, largest), cases.whole(1, largest), channels))
    given["color"] = {1: "gray", 3: cases.pick("rgb", "bgr"), 4: "rgba"}[channels]
    options, bar, apart = {"format": format}, 0, 0.0
    pixels = image[..., ::-1] if given["color"] == "bgr" else image
    if format == "png":
        options |= cases.pick({}, {"compression": cases.pick("fast", "default", "best")})
    if format == "jpeg":
        quality = cases.pick(90, cases.whole(75, 100))
        options |= {"quality": quality}
        file = io.BytesIO()
        source = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
        source.save(file, "JPEG", quality=quality, subsampling=0)
        pixels = channels_last(np.asarray(Image.open(file)))
        # Encoders round coefficients differently.
        bar, apart = 8, 0.1
    then = ["decode-image", {"channels": {1: "gray", 3: "rgb", 4: "rgba"}[channels]}]
    cases.add("encode-image", options, given, pixels, bar, f"encode-image {format}", apart=apart, then=then)


def mask(cases, largest):
    height, width = cases.whole(4, largest), cases.whole(4, largest)
    image, over = cases.noise((height, width, 3))
    over["color"] = "rgb"
    has_image = cases.rng.random() < 0.8
    small = [cases.whole(1, 40), cases.whole(1, 40)] if has_image and cases.rng.random() < 0.5 else [height, width]
    options = {"opacity": round(float(cases.rng.uniform(0, 1)), 2)} if cases.rng.random() < 0.7 else {}
    palette = voc_palette()
    if cases.rng.random() < 0.5:
        palette = cases.rng.integers(0, 256, (cases.whole(1, 30), 3))
        options["palette"] = palette.tolist()
    gives = cases.pick(None, "color", "alpha")
    options |= {"gives": gives} if gives else {}
    holds = cases.pick("classes", "matte")
    if holds == "classes":
        element = cases.pick("uint8", "int64", "int32")
        classes, given = cases.noise(small, element, high=8.0)
        hidden = [0]
        if cases.rng.random() < 0.4:
            hidden = [int(number) for number in cases.rng.integers(0, 8, cases.whole(1, 4))]
            options["hidden"] = hidden
        large = np.asarray(Image.fromarray(classes.astype(np.uint8)).resize((width, height), Image.Resampling.NEAREST))
        color, share = palette[large.astype(int) % len(palette)], ~np.isin(large, hidden) * np.float32(1)
    else:
        element = cases.pick("uint8", "float32")
        matte, given = cases.noise(small, element)
        options |= {"holds": "matte"} if element == "uint8" else {}
        matte = matte.astype(np.float32) / np.float32(255 if element == "uint8" else 1)
        share = cv2.resize(matte, (width, height)) if small != [height, width] else matte
        color = np.broadcast_to(palette[1 % len(palette)], (height, width, 3))
    gives = gives or {"classes": "color", "matte": "alpha"}[holds]
    opacity = options.get("opacity", 0.5 if gives == "color" and has_image else 1.0)
    share = (share * opacity)[..., None]
    if gives == "color":
        mixed = (image if has_image else 0) * (1 - share) + color * share
        result = mixed.round().astype(np.uint8)
    else:
        alpha = (share * 255).round().astype(np.uint8)
        result = np.concatenate([image, alpha], -1) if has_image else alpha
    inputs = [given, over if has_image else None, None]
    cases.add("mask", options, inputs, result, 1, f"mask {holds} {gives}")


GEOMETRY = [(warp, 4), (find_boxes, 3), (bounded, 3), (square, 1), (encode_image, 1), (mask, 2)]
