"""Writes the numbers that `warp`, `find-boxes`, `mask` and the bounds of `resize` are compared with
(`host/steps/src/image/reference_tests/geometry.rs`).

    python -m venv venv && venv/bin/pip install -r requirements-geometry.txt && venv/bin/python make_geometry.py

A second run writes the same bytes.
"""

import json
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from rapidocr.ch_ppocr_det.main import TextDetector
from rapidocr.ch_ppocr_det.utils import DBPostProcess, DetPreProcess
from rapidocr.ch_ppocr_rec.main import TextRecognizer
from rapidocr.utils.process_img import map_boxes_to_original, reduce_max_side
from skimage.transform import SimilarityTransform

OUT = Path(__file__).parent / "geometry"
RNG = np.random.default_rng(47)

FILTERS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
BORDERS = {
    "constant": cv2.BORDER_CONSTANT, "edge": cv2.BORDER_REPLICATE, "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}
ARCFACE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]], np.float32
)


class Cases:
    """Cases of steps: options, what they are given, what the library makes of it."""

    def __init__(self):
        self.blob = b""
        self.places = {}
        self.cases = []

    def put(self, array):
        data = np.ascontiguousarray(array).tobytes()
        at = self.places.get(data)
        if at is None:
            self.blob = self.blob.ljust(-(-len(self.blob) // 8) * 8, b"\0")
            at = self.places[data] = len(self.blob)
            self.blob += data
        return {"element": str(array.dtype), "shape": list(array.shape), "at": at}

    def add(self, name, step, options, given, expected, **more):
        expected = self.put(expected) if isinstance(expected, np.ndarray) else expected
        case = {"step": step, "name": name, "options": options, "given": self.put(given), "expected": expected}
        self.cases.append(case | more)

    def write(self, name):
        """The samples as a gray PNG, 512 to a row."""
        OUT.mkdir(exist_ok=True)
        rows = -(-len(self.blob) // 512)
        padded = np.frombuffer(self.blob.ljust(rows * 512, b"\0"), dtype=np.uint8).reshape(rows, 512)
        Image.fromarray(padded).save(OUT / f"{name}.png", optimize=True)
        (OUT / f"{name}.json").write_text(json.dumps(self.cases, separators=(",", ":")) + "\n")


def photo(height, width, channels=3):
    """Detail in brightness, gentle changes of colour, a hard edge."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    light = 120 + 60 * np.sin(x / 4) * np.cos(y / 5)
    light[height // 3 : height // 2, width // 4 : width // 2] = 250
    tint = [30 * np.sin(x / 19 + k + y / 31) for k in range(channels)]
    return np.clip(light[..., None] + np.stack(tint, -1), 0, 255).astype(np.uint8)


def channels_last(image):
    return image[..., None] if image.ndim == 2 else image


# --- warp ---------------------------------------------------------------------------------------


def length(a, b):
    return float(np.linalg.norm(a - b))


def rotate_crop(image, points, flags, border, tall):
    """`get_rotate_crop_image` of RapidOCR, after PaddleOCR."""
    width = int(max(length(points[0], points[1]), length(points[2], points[3])))
    height = int(max(length(points[0], points[3]), length(points[1], points[2])))
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    map = cv2.getPerspectiveTransform(points, corners)
    result = channels_last(cv2.warpPerspective(image, map, (width, height), flags=flags, borderMode=border))
    if tall and height / width >= tall:
        result = np.rot90(result)
    return result


def quadrilateral(width, height, spread=4):
    corners = np.array([[0.15, 0.2], [0.8, 0.15], [0.85, 0.75], [0.1, 0.8]]) * [width, height]
    return (corners + RNG.normal(0, spread, (4, 2))).round(2).astype(np.float32)


def warps(cases):
    sources = [photo(40, 54), photo(40, 54, 1), photo(30, 30, 4), RNG.random((24, 31, 3)).astype(np.float32), photo(28, 36, 2)]
    for number in range(60):
        image = sources[number % len(sources)]
        high, wide, channels = image.shape
        filter = list(FILTERS)[number // 2 % 3]
        border = list(BORDERS)[number % 4]
        levels = "float" if image.dtype == np.float32 else "levels"
        # OpenCV interpolates two channels in steps of 1/32.
        steps = channels == 2 and filter == "bilinear"
        name = lambda map: f"{map} {filter} {levels}{' in steps' if steps else ''}"
        options = {"filter": filter, "border": border}
        flags, mode = FILTERS[filter], BORDERS[border]
        points = quadrilateral(wide, high)
        tall = 1.5 if number % 3 else None
        if number % 7 == 6:
            points = points[[1, 2, 3, 0]]
        result = rotate_crop(image, points, flags, mode, tall)
        more = {"rotate_tall": tall} if tall else {}
        cases.add(name("perspective"), "warp", {"size": "box", **options, **more}, image, result, points=points.tolist())

        size = (int(RNG.integers(5, 40)), int(RNG.integers(5, 40)))
        corners = np.array([[0, 0], [size[0], 0], [size[0], size[1]]], np.float32)
        map = cv2.getAffineTransform(points[:3], corners)
        fill = float(RNG.integers(0, 256)) if border == "constant" and levels == "levels" else 0.0
        result = cv2.warpAffine(image, map, size, flags=flags, borderMode=mode, borderValue=(fill,) * 4)
        more = {"fill": fill} if fill else {}
        cases.add(name("affine"), "warp", {"size": [size[1], size[0]], **options, **more}, image, channels_last(result),
                  points=points[:3].tolist())

    for side in (112, 224, 96, 128):
        image = photo(60, 70)
        landmarks = (ARCFACE * RNG.uniform(0.3, 0.5) + RNG.normal(0, 1.5, (5, 2)) + [4, 2]).astype(np.float32)
        ratio, aside = (side / 112, 0) if side % 112 == 0 else (side / 128, 8 * side / 128)
        places = ARCFACE * ratio + [aside, 0]
        map = SimilarityTransform.from_estimate(landmarks, places).params[:2]
        result = cv2.warpAffine(image, map, (side, side), borderValue=0.0)
        options = {"template": "arcface", "size": side}
        cases.add("arcface", "warp", options, image, result[::5, ::5], points=landmarks.tolist(), every=5)


# --- find-boxes ---------------------------------------------------------------------------------


def text_map(height, width, number):
    """Bars of text at angles, with holes, specks and soft edges, as levels of 255."""
    map = np.zeros((height, width), np.float32)
    for _ in range(int(RNG.integers(1, 9))):
        center = RNG.uniform(0, [width, height])
        size = RNG.uniform(3, [width / 2, height / 4])
        angle = float(RNG.choice([0, 0, RNG.uniform(-20, 20), RNG.uniform(-90, 90)]))
        corners = cv2.boxPoints((center.tolist(), size.tolist(), angle)).round().astype(np.int32)
        cv2.fillPoly(map, [corners], float(RNG.uniform(0.4, 1)))
    for _ in range(int(RNG.integers(0, 12))):
        x, y = RNG.integers(0, [width, height])
        cv2.circle(map, (int(x), int(y)), int(RNG.integers(0, 5)), float(RNG.choice([0.0, 0.9])), -1)
    if number % 3:
        map = cv2.GaussianBlur(map, (0, 0), float(RNG.uniform(0.4, 1.5)))
    if number % 5 == 4:
        map += RNG.normal(0, 0.15, map.shape)
    return (map.clip(0, 1) * 255).round().astype(np.uint8)


def in_lines(boxes, scores):
    """`TextDetector.sorted_boxes`, which leaves the scores behind: found again by their boxes."""
    ordered = TextDetector.sorted_boxes(boxes)
    left = [(box.tolist(), score) for box, score in zip(boxes, scores)]
    found = []
    for box in ordered.tolist():
        index = next(index for index, (other, _) in enumerate(left) if other == box)
        found.append({"points": box, "score": float(left.pop(index)[1])})
    return found


def box_maps(cases):
    for number in range(120):
        height, width = (int(side) for side in RNG.integers(20, 160, 2))
        levels = text_map(height, width, number)
        options = {
            "threshold": round(float(RNG.uniform(0.1, 0.7)), 2), "box_threshold": round(float(RNG.uniform(0.2, 0.8)), 2),
            "unclip_ratio": round(float(RNG.uniform(1.0, 3.0)), 2), "dilation": bool(number % 4 == 1),
            "score_mode": "slow" if number % 4 == 2 else "fast", "max_candidates": 5 if number % 11 == 10 else 1000,
        }
        if number % 6 == 0:
            options = {}
        source = [height, width] if number % 3 == 0 else [int(side) for side in RNG.integers(20, 400, 2)]
        process = DBPostProcess(
            options.get("threshold", 0.3), options.get("box_threshold", 0.5), options.get("max_candidates", 1000),
            options.get("unclip_ratio", 1.6), options.get("score_mode", "fast"), options.get("dilation", False),
        )
        map = levels.astype(np.float32) / np.float32(255)
        boxes, scores = process(map[None, None], source)
        expected = in_lines(boxes, scores) if len(boxes) else []
        cases.add(options.get("score_mode", "fast"), "find-boxes", options, levels, expected, source=source)


def page_boxes(cases):
    """A page made smaller or larger and given a border above and below, the map of a copy of that, and its boxes in
    the pixels of the page and of the source."""
    for number in range(60):
        height, width = (int(side) for side in RNG.integers(20, 160, 2))
        levels = text_map(height, width, number)
        page = [int(side * RNG.uniform(0.7, 4)) for side in (height, width)]
        border = int(RNG.integers(1, page[0] // 3)) if number % 3 == 2 else 0
        source = [int(side) for side in RNG.integers(20, 900, 2)]
        process = DBPostProcess(0.3, 0.5, 1000, 1.6, "fast", number % 2 == 0)
        boxes, scores = process((levels.astype(np.float32) / np.float32(255))[None, None], page)
        if len(boxes) == 0:
            continue
        inside = in_lines(boxes, scores)
        ratios = {"ratio_h": source[0] / (page[0] - 2 * border), "ratio_w": source[1] / page[1]}
        record = {"preprocess": ratios, "padding_1": {"top": border, "left": 0}}
        ordered = np.array([box["points"] for box in inside], np.float32)
        outside = map_boxes_to_original(ordered, record, *source).tolist()
        expected = [{"points": points, "score": box["score"]} for points, box in zip(outside, inside)]
        more = {"page": page, "border": border, "source": source, "page_points": [box["points"] for box in inside]}
        cases.add("page", "find-boxes", {"pixels": "image", "dilation": number % 2 == 0}, levels, expected, **more)


# --- mask ---------------------------------------------------------------------------------------


def voc_palette():
    colors = np.zeros((256, 3), np.uint8)
    for number in range(256):
        for bit in range(8):
            for channel in range(3):
                colors[number, channel] |= (number >> (3 * bit + channel) & 1) << (7 - bit)
    return colors


def masks(cases):
    for number in range(40):
        height, width = (int(side) for side in RNG.integers(8, 40, 2))
        image = photo(height, width)
        opacity = round(float(RNG.uniform(0.1, 1)), 2)
        small = [int(side) for side in RNG.integers(4, 30, 2)] if number % 2 else [height, width]
        if number % 3:
            classes = RNG.integers(0, 256 if number % 4 == 0 else 4, small).astype(np.uint8)
            large = np.asarray(Image.fromarray(classes).resize((width, height), Image.Resampling.NEAREST))
            mixed = cv2.addWeighted(image, 1 - opacity, voc_palette()[large], opacity, 0)
            expected = np.where(large[..., None] > 0, mixed, image)
            cases.add("classes", "mask", {"opacity": opacity}, classes, expected, image=cases.put(image))
        else:
            matte = RNG.random(small).astype(np.float32)
            large = cv2.resize(matte, (width, height))
            cut = Image.fromarray(image)
            cut.putalpha(Image.fromarray((large * np.float32(255)).round().astype(np.uint8)))
            cases.add("matte", "mask", {}, matte, np.asarray(cut), image=cases.put(image))


# --- sizes that `resize` keeps within bounds ----------------------------------------------------


def bounds():
    """Options, height and width, height and width after them."""
    cases = []
    reader = TextRecognizer.__new__(TextRecognizer)
    for number in range(150):
        height, width = (int(side) for side in RNG.integers(1, [2500, 2500]))
        image = np.zeros((height, width, 1), np.uint8)
        limit = int(RNG.choice([736, 960, int(RNG.integers(32, 1500))]))
        for name, edge in (("min", "min_edge"), ("max", "max_edge")):
            resized = DetPreProcess(limit, name).resize(image)
            if resized is not None:
                cases.append([{edge: limit, "multiple_of": 32}, [height, width], list(resized.shape[:2])])
        if max(height, width) > limit:
            try:
                resized, *_ = reduce_max_side(image, limit)
                options = {"max_edge": limit, "multiple_of": 32, "keep_within": True}
                cases.append([options, [height, width], list(resized.shape[:2])])
            except Exception:
                pass  # no pixel left
        height = int(RNG.integers(4, 80))
        ratio = max(320 / 48, width / height)
        reader.rec_image_shape = [3, 48, 320]
        image = np.full((height, width, 3), 255, np.uint8)
        line = reader.resize_norm_img(image, ratio)
        inked = int(np.flatnonzero(line[0, 0])[-1]) + 1
        cases.append([{"size": [48, 320], "mode": "line"}, [height, width], [48, inked]])
    (OUT / "bounds.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    bounds()
    RNG = np.random.default_rng(47)
    cases = Cases()
    box_maps(cases)
    cases.write("boxes")
    RNG = np.random.default_rng(47)
    cases = Cases()
    page_boxes(cases)
    cases.write("page-boxes")
    RNG = np.random.default_rng(47)
    cases = Cases()
    warps(cases)
    cases.write("warp")
    RNG = np.random.default_rng(47)
    cases = Cases()
    masks(cases)
    cases.write("mask")
    total = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{total / 1024:.0f} KiB")
