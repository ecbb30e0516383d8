#!/usr/bin/env python3
"""Draws docs/images/geometry.png: a slanted page, the boxes that `find-boxes` finds in it, what `warp` cuts out of
each, and the page with a `mask`.

    docs/images/geometry.py [GPUX]

GPUX is the program [default: target/release/gpux]; it makes every box and picture that is drawn. Needs Pillow.
"""

import io
import json
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image, ImageDraw, ImageFilter, ImageFont

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GPUX = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/gpux"
LINES = ["A page of text,", "slanted", "and found", "line by line"]
SIZE = (400, 260)

FIND = """
inputs: { map: image }
pipeline:
  - decode-image: { channels: gray }
  - to-tensor: { scale: true }
  - find-boxes: { unclip_ratio: 1.2, box_threshold: 0.4, out: boxes }
outputs: { boxes: json }
"""
WARP = """
inputs: { photo: image, box: json }
pipeline:
  - decode-image: { in: photo, out: pixels }
  - warp: { in: [pixels, box], filter: bicubic, border: edge }
  - resize: { size: [48, 320], mode: line }
  - encode-image: { out: line }
outputs: { line: bytes }
"""
MASK = """
inputs: { photo: image, map: image }
pipeline:
  - decode-image: { in: photo, out: pixels }
  - decode-image: { in: map, channels: gray, out: levels }
  - mask: { in: [levels, pixels], holds: matte, gives: color, palette: [[0, 0, 0], [0, 148, 255]], opacity: 0.7 }
  - encode-image: { out: shown }
outputs: { shown: bytes }
"""


def run(folder, pipeline, **inputs):
    (folder / "gpux.yml").write_text(f"name: picture\nversion: 1\n{pipeline}")
    given = [part for name, value in inputs.items() for part in ("--input", f"{name}={value}")]
    out = pathlib.Path(tempfile.mkdtemp(dir=folder))
    subprocess.run([GPUX, "run", folder, *given, "--format", "npy", "--output", out / "out"], check=True)
    return next((out / "out").iterdir())


def page():
    """A page with lines of text, and how likely each pixel is to be of one."""
    font = ImageFont.load_default(30)
    photo, map = Image.new("RGB", SIZE, (214, 204, 188)), Image.new("L", SIZE)
    for layer, ink, fill in ((photo, (40, 44, 60), None), (map, None, 230)):
        draw = ImageDraw.Draw(layer)
        for row, text in enumerate(LINES):
            at = (60, 40 + 48 * row)
            if ink:
                draw.text(at, text, ink, font)
            else:
                left, top, right, bottom = draw.textbbox(at, text, font)
                draw.rectangle([left + 3, top + 3, right - 3, bottom - 3], fill)
    slant = (1, 0.28, -30, -0.06, 1.1, 6, 0.0002, 0.0006)
    photo = photo.transform(SIZE, Image.Transform.PERSPECTIVE, slant, Image.Resampling.BICUBIC, fillcolor=(92, 84, 76))
    map = map.transform(SIZE, Image.Transform.PERSPECTIVE, slant, Image.Resampling.BICUBIC)
    return photo, map.filter(ImageFilter.GaussianBlur(2))


def main():
    photo, map = page()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        photo.save(folder / "photo.png")
        map.save(folder / "map.png")
        files = {"photo": f"@{folder}/photo.png", "map": f"@{folder}/map.png"}
        boxes = json.loads(run(folder, FIND, map=files["map"]).read_text())
        lines = [run(folder, WARP, photo=files["photo"], box=json.dumps(box)).read_bytes() for box in boxes]
        shown = run(folder, MASK, **files).read_bytes()

    picture = Image.new("RGB", (3 * SIZE[0] + 40, SIZE[1]), "white")
    found = photo.copy()
    draw = ImageDraw.Draw(found)
    for box in boxes:
        corners = [tuple(point) for point in box["points"]]
        draw.line([*corners, corners[0]], (255, 56, 56), 3)
    picture.paste(found, (0, 0))
    for row, line in enumerate(lines):
        picture.paste(Image.open(io.BytesIO(line)), (SIZE[0] + 20, 14 + 60 * row))
    picture.paste(Image.open(io.BytesIO(shown)), (2 * SIZE[0] + 40, 0))
    picture.quantize(128).save(ROOT / "docs/images/geometry.png", optimize=True)


if __name__ == "__main__":
    main()
