"""Writes the numbers that the image steps are compared with (`host/steps/src/image/reference.rs`),
beside those of `make.py`.

    python -m venv venv && venv/bin/pip install -r requirements-image.txt && venv/bin/python make_image.py

A second run writes the same bytes.
"""

import io
import json
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageOps
from sklearn.preprocessing import minmax_scale
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
    info = info.ljust(header, b"\0")
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

    at_palette = files["palette.bmp"]
    files["at-palette.bmp"] = at_palette[:10] + struct.pack("<I", 54) + at_palette[14:]

    # What OS/2 writes; what skips pixels, which are then the first colour.
    files["os2.bmp"] = bitmap(18, 13, 8, 0, table, rows_of(index), header=64)
    files["os2-24bit.bmp"] = bitmap(18, 13, 24, 0, b"", rows_of(pixels[..., ::-1].reshape(13, -1)), header=64)
    files["os2-rle8.bmp"] = bitmap(18, 13, 8, 1, table, runs + b"\0\1", header=64)
    skips = b"\x05\x03\0\0" + b"\0\x02\x04\x02" + b"\x09\x07" + b"\0\0" + b"\0\x05\1\2\3\4\5\0" + b"\xff\x06\0\0" + b"\0\x02\x02\x01"
    skips += b"\x03\x09" + b"\0\x02\x11\x07" * 2 + b"\0\1"
    files["rle8-skips.bmp"] = bitmap(18, 13, 8, 1, table, skips)
    files["rle4-skips.bmp"] = bitmap(18, 13, 4, 2, table, skips.replace(b"\0\x05\1\2\3\4\5\0", b"\0\x05\x12\x34\x5f\0"))


def save(files, name, image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    files[name] = buffer.getvalue()


def jpegs(files):
    """Every subsampling at sides that fill no block, restarts, scans, and more detail than JPEG can hold."""
    rng = np.random.default_rng(13)
    samplings = {"411": 0x411111, "420": 0x221111, "422": 0x211111, "440": 0x121111, "444": 0x111111}
    for height, width in ((33, 17), (5, 5), (3, 4)):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        for name, sampling in samplings.items():
            for kind, more in (("", [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]), ("-progressive", [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])):
                options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_QUALITY, 85, *more]
                data = cv2.imencode(".jpg", pixels, options)[1].tobytes()
                files[f"{name}-{height}x{width}{kind}.jpg"] = data
    harsh = Image.fromarray(rng.integers(0, 256, (24, 31, 3), dtype=np.uint8))
    save(files, "best.jpg", harsh, "JPEG", quality=100)
    save(files, "worst.jpg", harsh, "JPEG", quality=1)
    save(files, "rgb.jpg", harsh, "JPEG", keep_rgb=True)
    save(files, "cmyk.jpg", harsh.convert("CMYK"), "JPEG", progressive=True)
    save(files, "gray.jpg", harsh.convert("L"), "JPEG", progressive=True)


def markers(data):
    """The marker segments and scans of a JPEG file behind its first marker: kind, and bytes with those of the scan."""
    at, parts = 2, []
    while data[at + 1] != 0xD9:
        kind, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        while kind == 0xDA and (data[end] != 0xFF or data[end + 1] in (0, *range(0xD0, 0xD8))):
            end += 1
        parts.append((kind, data[at:end]))
        at = end
    return parts


def partial_jpegs(files):
    """Frames of Motion JPEG, which have no Huffman tables, and progressive files without their last scans."""
    rng = np.random.default_rng(17)
    y, x = np.mgrid[0:53, 0:67]
    light = 128 + 90 * np.sin(x / 7) * np.cos(y / 5) + rng.normal(0, 4, (53, 67))
    colors = np.clip(np.stack([light, 255 - light, 60 + light / 2], -1), 0, 255).astype(np.uint8)
    for name, image in {"gray": Image.fromarray(colors[..., 0]), "colors": Image.fromarray(colors)}.items():
        save(files, name, image, "JPEG", quality=80)
        whole = b"".join(part for kind, part in markers(files.pop(name)) if kind != 0xC4)
        files[f"motion-{name}.jpg"] = b"\xff\xd8" + whole + b"\xff\xd9"
    for size, subsampling, counts in [((67, 53), 2, (1, 2, 5, 8)), ((40, 37), 0, (1, 3)), ((16, 40), 2, (1, 4)), ((9, 9), 2, (1,))]:
        image = Image.fromarray(colors).crop((0, 0, *size))
        save(files, "whole", image, "JPEG", quality=60, progressive=True, subsampling=subsampling)
        parts = markers(files.pop("whole"))
        scans = [at for at, (kind, _) in enumerate(parts) if kind == 0xDA]
        for count in counts:
            kept = b"".join(part for _, part in parts[: scans[count - 1] + 1])
            files[f"unfinished-{size[0]}x{size[1]}-{count}.jpg"] = b"\xff\xd8" + kept + b"\xff\xd9"


def exif_data(kind, count, value, order="<"):
    """Exif data of one tag, the orientation."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    return head + struct.pack(order + "HHHI", 1, 0x0112, kind, count) + value.ljust(4, b"\0") + bytes(4)


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def orientations(files):
    """The orientation in every type and place where Pillow finds one."""
    image = Image.fromarray(np.random.default_rng(19).integers(0, 256, (5, 9, 3), dtype=np.uint8))
    values = {
        "long": exif_data(4, 1, b"\6\0\0\0"), "two": exif_data(3, 2, b"\6\0\x03\0"), "signed": exif_data(8, 1, b"\0\6", ">"),
        "signed-long": exif_data(9, 1, b"\0\0\0\x08", ">"), "float": exif_data(11, 1, struct.pack("<f", 6)), "byte": exif_data(1, 1, b"\6"),
        "fraction": exif_data(11, 1, struct.pack("<f", 6.5)), "nine": exif_data(3, 1, b"\x09\0"), "negative": exif_data(9, 1, b"\xff" * 4),
        "none": exif_data(3, 0, b"\6"), "prefix": b"Exif\0\0" + exif_data(3, 1, b"\0\3", ">"), "big": exif_data(4, 1, b"\6\1\0\0"),
    }  # fmt: skip
    for name, exif in values.items():
        save(files, f"exif-{name}.jpg", image, "JPEG", quality=95, exif=b"Exif\0\0" + exif)
        if name in ("long", "prefix"):
            save(files, f"exif-{name}.webp", image, "WEBP", lossless=True, exif=exif)
    attribute = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    element = b"<rdf:Description><tiff:Orientation>8</tiff:Orientation></rdf:Description>"
    for name, packet in {"attribute": attribute, "element": element}.items():
        save(files, f"exif-xmp-{name}.jpg", image, "JPEG", quality=95, xmp=packet)
        save(files, f"exif-xmp-{name}.webp", image, "WEBP", lossless=True, xmp=packet)
        save(files, f"exif-xmp-{name}.tiff", image, "TIFF", tiffinfo={700: packet})
    save(files, "exif-both.jpg", image, "JPEG", quality=95, xmp=attribute, exif=b"Exif\0\0" + exif_data(3, 1, b"\1\0"))

    save(files, "png", image, "PNG")
    png = files.pop("png")
    data = png.index(b"IDAT") - 4
    turned = exif_data(3, 1, b"\6\0")
    digits = turned.hex()
    profile = f"\nexif\n{len(turned):8}\n{digits[:30]}\n{digits[30:]}\n".encode()
    chunks = {
        "chunk": png_chunk(b"eXIf", exif_data(4, 1, b"\6\0\0\0")),
        "profile": png_chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile)),
        "profile-plain": png_chunk(b"tEXt", b"Raw profile type exif\0" + profile),
        "xmp": png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + attribute),
        "xmp-packed": png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(element)),
    }
    for name, chunk in chunks.items():
        files[f"exif-{name}.png"] = png[:data] + chunk + png[data:]
        files[f"exif-{name}-late.png"] = png[:-12] + chunk + png[-12:]


def tiles(tags, data, order="<"):
    """A TIFF of tiles, which Pillow does not write. Every value is a long."""
    tags = {**tags, 324: [0] * len(data), 325: [len(tile) for tile in data]}
    entries, values = b"", b""
    after = 8 + 2 + 12 * len(tags) + 4
    start = after + 4 * sum(len(value) for value in tags.values() if len(value) > 1)
    offsets = [start + sum(map(len, data[:at])) for at in range(len(data))]
    for tag, value in sorted({**tags, 324: offsets}.items()):
        packed = struct.pack(f"{order}{len(value)}I", *value)
        entries += struct.pack(order + "HHI", tag, 4, len(value))
        entries += packed if len(value) == 1 else struct.pack(order + "I", after + len(values))
        values += packed if len(value) > 1 else b""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(tags))
    return head + entries + bytes(4) + values + b"".join(data)


def tiffs(files):
    """The order of bits in bytes, 64-bit offsets, and JPEG."""
    rng = np.random.default_rng(23)
    y, x = np.mgrid[0:37, 0:45]
    light = 120 + 70 * np.sin(x / 6) * np.cos(y / 4) + rng.normal(0, 3, (37, 45))
    rgb = Image.fromarray(np.clip(np.stack([light, 230 - light, 40 + light / 2], -1), 0, 255).astype(np.uint8))
    gray = rgb.convert("L")
    for name, image, compression in [
        ("lzw", rgb, "tiff_lzw"), ("packbits", rgb, "packbits"), ("deflate", gray, "tiff_adobe_deflate"),
        ("group4", gray.convert("1"), "group4"), ("bits", gray.convert("1"), "packbits"),
    ]:  # fmt: skip
        save(files, f"reversed-{name}.tiff", image, "TIFF", compression=compression, tiffinfo={266: 2})
    save(files, "big.tiff", rgb, "TIFF", big_tiff=True)
    save(files, "big-lzw.tiff", gray, "TIFF", big_tiff=True, compression="tiff_lzw", tiffinfo={266: 2, 0x0112: 6})
    save(files, "jpeg.tiff", rgb, "TIFF", compression="jpeg", quality=75)
    save(files, "jpeg-strips.tiff", rgb, "TIFF", compression="jpeg", quality=90, tiffinfo={278: 16})
    save(files, "jpeg-gray.tiff", gray, "TIFF", compression="jpeg", tiffinfo={278: 8})
    alpha = Image.merge("RGBA", (*rgb.split(), gray))
    save(files, "straight", alpha, "TIFF")
    extra = struct.pack("<HHIH", 338, 3, 1, 2)
    files["premultiplied.tiff"] = files.pop("straight").replace(extra, extra[:-2] + b"\1\0")
    for name, options, photometric in [("ycbcr", {"subsampling": 0}, 6), ("rgb", {"keep_rgb": True}, 2)]:
        parts = []
        for top, left in [(0, 0), (0, 32), (32, 0), (32, 32)]:
            save(files, "tile", rgb.crop((left, top, left + 32, top + 32)), "JPEG", quality=85, **options)
            parts.append(files.pop("tile"))
        tags = {256: [45], 257: [37], 258: [8] * 3, 259: [7], 262: [photometric], 277: [3], 284: [1], 322: [32], 323: [32], 530: [1, 1]}
        files[f"jpeg-tiles-{name}.tiff"] = tiles(tags, parts, "<" if name == "rgb" else ">")


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

    jpegs(files)
    partial_jpegs(files)
    orientations(files)
    tiffs(files)

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


# --- the steps that make one image of another ---------------------------------------------------


class Cases:
    """Cases of one step: options, what it is given, what the library makes of it."""

    def __init__(self):
        self.blob = b""
        self.places = {}
        self.cases = []

    def put(self, array):
        data = np.ascontiguousarray(array).tobytes()
        at = self.places.get(data)
        if at is None:
            # Whole numbers of every size begin at their own multiples.
            self.blob = self.blob.ljust(-(-len(self.blob) // 8) * 8, b"\0")
            at = self.places[data] = len(self.blob)
            self.blob += data
        return {"element": str(array.dtype), "shape": list(array.shape), "at": at}

    def add(self, step, options, given, expected, color=None, name=None):
        self.cases.append({
            "step": step, "name": name or step, "options": options, "color": color,
            "given": self.put(given), "expected": self.put(expected),
        })

    def write(self, name):
        OUT.mkdir(exist_ok=True)
        write_bytes(OUT / f"{name}.png", self.blob)
        write_json(OUT / f"{name}.json", self.cases)


def planes(image):
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def pixels(tensor):
    return tensor.numpy().transpose(1, 2, 0)


def pillow(image):
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def array(image):
    found = np.asarray(image)
    return found[..., None] if found.ndim == 2 else found


def parts(cases):
    rgb, gray, floats = photo(11, 16), photo(9, 7, 1), RNG.normal(0, 2, (6, 5, 3)).astype(np.float32)
    for image in (rgb, gray, floats):
        for top, left, height, width in [(0, 0, 3, 4), (2, 1, 4, 3), (-2, -3, 5, 6), (4, 3, 10, 12), (50, 50, 2, 2)]:
            cases.add("crop", {"top": top, "left": left, "height": height, "width": width}, image,
                      pixels(F.crop(planes(image), top, left, height, width)))
        for height, width in [(4, 4), (5, 4), (3, 5), (1, 2), (9, 16), (15, 20), (4, 20), (20, 3)]:
            cases.add("center-crop", {"size": [height, width]}, image, pixels(F.center_crop(planes(image), [height, width])))
        for mode in ("constant", "edge", "reflect", "symmetric"):
            for padding in (2, [1, 3], [0, 1, 2, 3]):
                options = {"padding": padding, "mode": mode}
                options |= {"fill": 114} if mode == "constant" else {}
                padded = F.pad(planes(image), padding, fill=114, padding_mode=mode)
                cases.add("pad", options, image, pixels(padded))
        for direction, axes in {"horizontal": 1, "vertical": 0, "both": (0, 1)}.items():
            cases.add("flip", {"direction": direction}, image, np.flip(image, axes))


def letterboxed(image, size, stride=32, auto=False, scaleup=True, center=True, fill=114):
    """Ultralytics' rule: one scale for both sides, halves rounded as Python does."""
    height, width = image.shape[:2]
    scale = min(size[0] / height, size[1] / width)
    scale = scale if scaleup else min(scale, 1.0)
    wide, high = round(width * scale), round(height * scale)
    across, down = size[1] - wide, size[0] - high
    if auto:
        across, down = across % stride, down % stride
    if (high, wide) != (height, width):
        image = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
    left, top = (round(across / 2 - 0.1), round(down / 2 - 0.1)) if center else (0, 0)
    return cv2.copyMakeBorder(image, top, down - top, left, across - left, cv2.BORDER_CONSTANT, value=(fill,) * 3)


def letterboxes(cases):
    for height, width in [(48, 64), (33, 47), (64, 48), (20, 20), (100, 30)]:
        image = photo(height, width)
        for options in [{}, {"auto": True, "stride": 8}, {"scaleup": False}, {"center": False}, {"fill": 0}]:
            for size in ([40, 40], [31, 56]):
                cases.add("letterbox", {"size": size, **options}, image, letterboxed(image, size, **options))


def turns(cases):
    filters = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    for image, color in [(photo(13, 21), "rgb"), (photo(12, 12, 1), "gray"), (photo(10, 15, 4), "rgba")]:
        for degrees in (90, 180, 270, 45, 7.5, -33, 120):
            for expand in (True, False):
                for name, filter in filters.items():
                    fill = 0 if color == "rgba" or degrees % 90 == 0 else 60
                    color_fill = fill if color == "gray" else (fill,) * image.shape[2]
                    turned = pillow(image).rotate(degrees, filter, expand=expand, fillcolor=color_fill)
                    cases.add("rotate", {"degrees": degrees, "expand": expand, "filter": name, "fill": fill}, image,
                              array(turned), color, f"rotate {name}")


def colors(cases):
    rgb, gray, rgba = noise(9, 13), noise(7, 5, 1), noise(8, 11, 4)
    modes = {"gray": "L", "rgb": "RGB", "rgba": "RGBA"}
    for image, color in [(rgb, "rgb"), (gray, "gray"), (rgba, "rgba")]:
        for to, mode in modes.items():
            cases.add("color", {"to": to}, image, array(pillow(image).convert(mode)), color)
        cases.add("color", {"to": "bgr"}, image, array(pillow(image).convert("RGB"))[..., ::-1], color)
    cases.add("color", {"to": "gray"}, rgb[..., ::-1], array(pillow(rgb).convert("L")), "bgr")
    for background in (0, 255, (10, 200, 99)):
        under = Image.new("RGB", (11, 8), background if isinstance(background, tuple) else (background,) * 3)
        under.paste(pillow(rgba), mask=pillow(rgba))
        cases.add("color", {"to": "rgb", "background": background}, rgba, array(under), "rgba")
        cases.add("color", {"to": "gray", "background": background}, rgba, array(under.convert("L")), "rgba")


def tensors(cases):
    image = noise(6, 9)
    for name, dtype in {"float32": torch.float32, "float16": torch.float16, "float64": torch.float64}.items():
        scaled = F.to_dtype(planes(image), torch.float32, scale=True).to(dtype)
        cases.add("to-tensor", {"element": name, "scale": True}, image, scaled.numpy()[None])
        cases.add("to-tensor", {"element": name, "batch": False}, image, planes(image).to(dtype).numpy())
    cases.add("to-tensor", {"channels": "bgr"}, image, planes(image[..., ::-1]).float().numpy()[None], "rgb")
    cases.add("to-tensor", {"channels": "bgr", "layout": "hwc", "element": "uint8"}, image, image[None, ..., ::-1], "rgb")


def ranges(cases):
    for image in (photo(6, 9), photo(5, 4, 1), RNG.normal(-40, 3, (6, 5, 3)).astype(np.float32)):
        channels = image.shape[2]
        whole = minmax_scale(image.reshape(-1, 1).astype(np.float64)).reshape(image.shape)
        each = minmax_scale(image.reshape(-1, channels).astype(np.float64)).reshape(image.shape)
        cases.add("normalize", {"method": "min-max"}, image, whole.astype(np.float32))
        cases.add("normalize", {"method": "min-max", "per": "channel"}, image, each.astype(np.float32))


# --- resize as OpenCV and torchvision do it -----------------------------------------------------


def resizes(cases):
    filters = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA}
    modes = {"nearest": F.InterpolationMode.NEAREST, "bilinear": F.InterpolationMode.BILINEAR, "bicubic": F.InterpolationMode.BICUBIC}
    sources = {
        "rgb": photo(40, 54), "gray": photo(40, 54, 1), "rgba": photo(28, 36, 4), "noise": noise(48, 36), "dot": noise(1, 1),
        "line": noise(1, 30), "float": RNG.random((24, 31, 3)).astype(np.float32),
        "float gray": RNG.random((24, 31, 1)).astype(np.float32),
    }
    sizes = [(20, 27), (13, 33), (45, 50), (7, 5), (1, 1), (12, 9)]
    for name, image in sources.items():
        kind = "float" if image.dtype == np.float32 else "levels"
        for height, width in sizes[:3] if name in ("gray", "rgba", "float gray", "line") else sizes:
            for filter, code in filters.items():
                result = cv2.resize(image, (width, height), interpolation=code)
                result = result[..., None] if result.ndim == 2 else result
                cases.add("resize", {"size": [height, width], "filter": filter, "library": "opencv"}, image, result, None,
                          f"opencv {filter} {kind}")
            for filter, mode in modes.items():
                for antialias in (True, False):
                    if name == "dot" or (height, width) == (1, 1):
                        continue  # torch's kernel for bytes stops with an assertion
                    result = pixels(F.resize(planes(image), [height, width], mode, antialias=antialias))
                    options = {"size": [height, width], "filter": filter, "library": "torch"}
                    options |= {} if antialias else {"antialias": False}
                    cases.add("resize", options, image, result, None,
                              f"torch {filter} {'antialias' if antialias else 'plain'} {kind}")


def steps():
    cases = Cases()
    for part in (parts, letterboxes, turns, colors, tensors, ranges):
        part(cases)
    cases.write("steps")
    cases = Cases()
    resizes(cases)
    cases.write("resize")


if __name__ == "__main__":
    torch.set_num_threads(1)
    decode()
    steps()
    total = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{total / 1024:.0f} KiB")
