"""Writes the numbers that the image steps are compared with (`host/src/builtin/image/reference.rs`),
beside those of `make.py`.

    python -m venv venv && venv/bin/pip install -r requirements-image.txt && venv/bin/python make_image.py

A second run writes the same bytes.
"""

import io
import json
import struct
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as F

OUT = Path(__file__).parent / "image"
RNG = np.random.default_rng(11)


def photo(height, width, channels=3):
    """Detail in brightness, gentle changes of colour, a hard edge and a little noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    light = 120 + 60 * np.sin(x / 4) * np.cos(y / 5) + RNG.normal(0, 3, (height, width))
    light[height // 3 : height // 2, width // 4 : width // 2] = 250
    tint = [30 * np.sin(x / 19 + y / 31), 20 * np.cos(y / 23), 40 * np.sin((x + y) / 37), 100 * np.cos((x + y) / 9)]
    return np.clip(light[..., None] + np.stack(tint[:channels], -1), 0, 255).astype(np.uint8)


def noise(height, width, channels=3):
    return RNG.integers(0, 256, (height, width, channels), dtype=np.uint8)


def write_bytes(path, data):
    """Bytes as a gray PNG, 512 to a row: compressed, and read by the decoder that is there anyway."""
    rows = -(-len(data) // 512)
    padded = np.frombuffer(data.ljust(rows * 512, b"\0"), dtype=np.uint8).reshape(rows, 512)
    Image.fromarray(padded).save(path, optimize=True)


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def folder(name):
    path = OUT / name
    path.mkdir(parents=True, exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    return path


# --- decode-image -------------------------------------------------------------------------------


def bitmap(width, height, bits, packing, palette, rows, header=40):
    """A BMP as Pillow does not write it."""
    info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, packing, len(rows), 2835, 2835, len(palette) // 4, 0)
    start = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + info + palette + rows


def rows_of(array):
    """Rows from the bottom up, each filled to 4 bytes."""
    lines = [np.ascontiguousarray(row).tobytes() for row in array[::-1]]
    return b"".join(line.ljust(-(-len(line) // 4) * 4, b"\0") for line in lines)


def bmps(files):
    pixels = photo(13, 18)
    gray = Image.fromarray(photo(11, 15, 1)[..., 0])
    palette = Image.fromarray(pixels).quantize(16)
    colors = np.array(palette.getpalette()[:48], dtype=np.uint8).reshape(16, 3)
    table = np.concatenate([colors[:, ::-1], np.zeros((16, 1), np.uint8)], 1).tobytes()
    index = np.asarray(palette)
    for name, image in {"rgb": Image.fromarray(pixels), "gray": gray, "bits": gray.convert("1"), "palette": palette}.items():
        save(files, f"{name}.bmp", image, "BMP")
    files["4bit.bmp"] = bitmap(18, 13, 4, 0, table, rows_of((index[:, ::2] << 4) | index[:, 1::2]))
    files["top-down.bmp"] = bitmap(18, -13, 24, 0, b"", rows_of(pixels[::-1, :, ::-1].reshape(13, -1)))
    files["32bit.bmp"] = bitmap(18, 13, 32, 0, b"", rows_of(np.concatenate([pixels[..., ::-1], pixels[..., :1]], 2).reshape(13, -1)))
    five = (pixels >> 3).astype("<u2")
    files["16bit.bmp"] = bitmap(18, 13, 16, 0, b"", rows_of((five[..., 0] << 10) | (five[..., 1] << 5) | five[..., 2]))
    six = (pixels[..., 1] >> 2).astype("<u2")
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    files["565.bmp"] = bitmap(18, 13, 16, 3, masks, rows_of((five[..., 0] << 11) | (six << 5) | five[..., 2]))
    runs = b""
    for row in index[::-1]:
        at = 0
        while at < 18:
            length = 1
            while at + length < 18 and row[at + length] == row[at]:
                length += 1
            runs += bytes([length, row[at]])
            at += length
        runs += b"\0\0"
    files["rle8.bmp"] = bitmap(18, 13, 8, 1, table, runs + b"\0\1")


def save(files, name, image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    files[name] = buffer.getvalue()


def decode():
    out = folder("decode")
    files = {}
    rgb, alpha = Image.fromarray(photo(21, 34)), Image.fromarray(photo(19, 25, 4))
    gray = Image.fromarray(photo(14, 17, 1)[..., 0])
    exif = Image.Exif()

    save(files, "lossless.webp", rgb, "WEBP", lossless=True)
    save(files, "lossless-alpha.webp", alpha, "WEBP", lossless=True, exact=True)
    save(files, "lossless-noise.webp", Image.fromarray(noise(30, 41)), "WEBP", lossless=True)
    save(files, "one.webp", rgb.crop((3, 3, 4, 4)), "WEBP", lossless=True)
    save(files, "lossy.webp", rgb, "WEBP", quality=80)
    save(files, "lossy-low.webp", Image.fromarray(photo(75, 50)), "WEBP", quality=10)
    save(files, "lossy-odd.webp", Image.fromarray(noise(33, 17)), "WEBP", quality=95)
    save(files, "lossy-alpha.webp", alpha, "WEBP", quality=80)
    save(files, "animated.webp", rgb, "WEBP", lossless=True, save_all=True, append_images=[rgb.rotate(180)])
    save(files, "animated-lossy.webp", alpha, "WEBP", save_all=True, append_images=[alpha.rotate(180)])
    for orientation in (3, 5, 6, 8):
        exif[0x0112] = orientation
        save(files, f"exif-{orientation}.webp", rgb, "WEBP", lossless=True, exif=exif)
        save(files, f"exif-{orientation}.tiff", rgb, "TIFF", exif=exif)

    save(files, "rgb.gif", rgb, "GIF")
    save(files, "gray.gif", gray, "GIF")
    save(files, "interlaced.gif", rgb.quantize(40), "GIF", interlace=True)
    save(files, "transparent.gif", rgb.quantize(8), "GIF", transparency=2)
    save(files, "animated.gif", rgb, "GIF", save_all=True, append_images=[rgb.rotate(180)])
    save(files, "one.gif", rgb.crop((0, 0, 1, 1)), "GIF")

    bmps(files)

    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        name = compression.removeprefix("tiff_").removeprefix("adobe_")
        save(files, f"{name}.tiff", rgb, "TIFF", compression=compression)
    save(files, "predictor.tiff", rgb, "TIFF", compression="tiff_lzw", tiffinfo={317: 2})
    save(files, "strips.tiff", rgb, "TIFF", compression="tiff_lzw", tiffinfo={278: 2})
    save(files, "gray.tiff", gray, "TIFF")
    save(files, "bits.tiff", gray.convert("1"), "TIFF", compression="group4")
    save(files, "alpha.tiff", alpha, "TIFF", compression="tiff_lzw")
    save(files, "cmyk.tiff", rgb.convert("CMYK"), "TIFF")
    save(files, "pages.tiff", rgb, "TIFF", save_all=True, append_images=[gray])

    index = {}
    for name, data in files.items():
        (out / name).write_bytes(data)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        raw = b"".join(np.asarray(image.convert(mode)).tobytes() for mode in ("RGB", "L", "RGBA"))
        write_bytes(out / f"{name}.pixels.png", raw)
        index[name] = {"height": image.height, "width": image.width}
    write_json(out / "index.json", index)
    deep(out)


def deep(out):
    """16-bit samples: those of gray as Pillow reads them, those of colours as OpenCV does."""
    ok, png = cv2.imencode(".png", RNG.integers(0, 65536, (9, 12, 3), dtype=np.uint16))
    ok, png_alpha = cv2.imencode(".png", RNG.integers(0, 65536, (7, 5, 4), dtype=np.uint16))
    ok, tiff = cv2.imencode(".tiff", RNG.integers(0, 65536, (9, 12, 3), dtype=np.uint16))
    files = {"rgb16.png": png.tobytes(), "rgba16.png": png_alpha.tobytes(), "rgb16.tiff": tiff.tobytes()}
    gray = Image.fromarray(RNG.integers(0, 65536, (9, 12), dtype=np.uint16))
    save(files, "gray16.png", gray, "PNG")
    save(files, "gray16.tiff", gray, "TIFF")
    index = {}
    for name, data in files.items():
        (out / name).write_bytes(data)
        if name.startswith("gray"):
            samples, color = np.asarray(Image.open(io.BytesIO(data)))[..., None], "gray"
        else:
            samples = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            color = "rgb" if samples.shape[2] == 3 else "rgba"
            samples = cv2.cvtColor(samples, cv2.COLOR_BGR2RGB if color == "rgb" else cv2.COLOR_BGRA2RGBA)
        write_bytes(out / f"{name}.pixels.png", samples.astype("<u2").tobytes())
        index[name] = {"shape": samples.shape, "color": color}
    write_json(out / "deep.json", index)


if __name__ == "__main__":
    decode()
    total = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{total / 1024:.0f} KiB")
