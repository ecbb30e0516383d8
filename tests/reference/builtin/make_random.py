"""Cases with random parameters for steps of images, sounds, points, lists and tensors, and what the reference
libraries make of them (`host/steps/src/reference/random.rs` compares).

    python -m venv venv && venv/bin/pip install -r requirements-random.txt && venv/bin/python make_random.py

Needs `oggenc` (Debian: vorbis-tools) for Vorbis whose channels are not coupled. A second run with the same
`--cases`, `--seed` and versions draws the same cases. The ones checked in are those of the defaults; for more:

    python make_random.py --cases 3000 --seed 2 --out ../../../target/random
    GPUX_RANDOM_CASES=$PWD/../../../target/random cargo test -p gpux-steps reference::random -- --nocapture
"""

import argparse
import io
import subprocess
import tempfile
import warnings
from pathlib import Path

import cv2
import librosa
import numpy as np
import scipy.signal
import soundfile
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as F

from make_audio import WhisperFeatureExtractor, librosa_mel, torchaudio, with_serial
from make_image import array, letterboxed, pillow, pixels, planes
from random_geometry import GEOMETRY
from random_inputs import Cases
from random_readers import READERS

COLORS = {1: "gray", 3: "rgb", 4: "rgba"}
PILLOW = {
    "nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS, "area": Image.Resampling.BOX,
}  # fmt: skip
OPENCV = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA}
TORCH = {name: getattr(F.InterpolationMode, name.upper()) for name in ("nearest", "bilinear", "bicubic")}

# --- images -------------------------------------------------------------------------------------


def resize(cases, largest):
    channels = cases.pick(1, 3, 3, 4)
    element = cases.pick("uint8", "uint8", "uint8", "float32")
    height, width = cases.whole(1, largest), cases.whole(1, largest)
    size = [cases.whole(1, largest), cases.whole(1, largest)]
    if cases.rng.random() < 0.15:
        factor = cases.whole(2, 5)
        height, width = size[0] * factor, size[1] * cases.pick(factor, 2)
    library = cases.pick("pillow", "pillow", "opencv", "torch")
    image, given = cases.noise((height, width, channels), element, faint=channels == 4 and cases.rng.random() < 0.5)
    options = {"size": size, "library": library}
    if library == "pillow":
        options["filter"] = name = cases.pick(*PILLOW)
        if element == "uint8":
            given["color"] = COLORS[channels]
            result = array(pillow(image).resize(size[::-1], PILLOW[name]))
        else:
            bands = [Image.fromarray(image[..., band]).resize(size[::-1], PILLOW[name]) for band in range(channels)]
            result = np.stack(bands, -1)
        bar = 0 if element == "uint8" or name == "nearest" else 2e-6
    elif library == "opencv":
        options["filter"] = name = cases.pick(*OPENCV)
        result = cv2.resize(image, size[::-1], interpolation=OPENCV[name])
        result = result.reshape(*size, channels)
        exact = name == "nearest" or name == "area" and element == "uint8"
        bar = 0 if exact else 1 if element == "uint8" else 1e-5
    else:
        options["filter"] = name = cases.pick(*TORCH)
        options["antialias"] = antialias = cases.pick(True, True, False)
        # torch's kernels for bytes stop with an assertion.
        if min(height, width, *size) < 2:
            return
        if cases.rng.random() < 0.3:
            side = cases.whole(2, largest)
            # What torchvision's rule makes of the other side.
            longer = max(height, width) * side // min(height, width)
            if longer > 4 * largest:
                return
            options |= {"size": side, "mode": "shortest"}
            size = [side]
        result = pixels(F.resize(planes(image), size, TORCH[name], antialias=antialias))
        bar = 0 if name == "nearest" or antialias and element == "uint8" else 1 if element == "uint8" else 1e-5
    cases.add("resize", options, given, result, bar, f"resize {library} {options['filter']} {element}")


def scene(cases, channels):
    """A small picture with gradients, edges and noise: what a file is made of."""
    height, width = cases.whole(1, 40), cases.whole(1, 40)
    y, x = np.mgrid[0:height, 0:width]
    waves = cases.rng.uniform(2, 30, (2, channels))
    light = 128 + 90 * np.sin(x[..., None] / waves[0]) * np.cos(y[..., None] / waves[1])
    light += cases.rng.normal(0, cases.pick(1, 10, 60), (height, width, channels))
    return np.clip(light, 0, 255).astype(np.uint8)


def picture(cases):
    """The bytes of a picture's file, and its format."""
    kind = cases.pick("PNG", "PNG", "JPEG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "TIFF")
    modes = {
        "PNG": ("1", "L", "LA", "P", "RGB", "RGBA"), "JPEG": ("L", "RGB", "RGB", "CMYK"), "WEBP": ("RGB", "RGBA"),
        "GIF": ("L", "P"), "BMP": ("1", "L", "P", "RGB"), "TIFF": ("1", "L", "RGB", "RGBA", "CMYK"),
    }  # fmt: skip
    mode = cases.pick(*modes[kind])
    source = Image.fromarray(scene(cases, 3))
    if mode in ("LA", "RGBA"):
        source.putalpha(Image.fromarray(scene(cases, 1)[..., 0]).resize(source.size))
    if mode == "P":
        image = source.quantize(cases.whole(2, 256))
    elif mode == "CMYK":
        # Not by way of RGB, which has no black.
        inks = [Image.fromarray(scene(cases, 1)[..., 0]).resize(source.size) for _ in range(4)]
        image = Image.merge("CMYK", inks)
    else:
        image = source.convert(mode)
    options = {}
    if kind == "JPEG":
        options = {"quality": cases.whole(1, 100), "progressive": cases.pick(True, False), "subsampling": cases.pick(0, 1, 2)}
        options |= {"restart_marker_rows": 1} if cases.rng.random() < 0.2 else {}
    elif kind == "WEBP":
        options = {"lossless": cases.pick(True, False), "quality": cases.whole(1, 100)}
    elif kind == "TIFF":
        packings = ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits") + (("group4",) if mode == "1" else ())
        options = {"compression": cases.pick(*packings)}
    elif kind == "PNG" and mode == "P":
        options = {"bits": cases.pick(8, 8)}
    if kind in ("PNG", "JPEG", "WEBP", "TIFF") and cases.rng.random() < 0.4:
        exif = Image.Exif()
        exif[0x0112] = int(cases.rng.integers(1, 9))
        options["exif"] = exif
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue(), f"{kind} {mode}"


def decode_image(cases, _):
    data, kind = picture(cases)
    channels, mode = cases.pick(("rgb", "RGB"), ("gray", "L"), ("rgba", "RGBA"))
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    cases.add("decode-image", {"channels": channels}, cases.file(data), array(image.convert(mode)), name=f"decode {kind}")


def geometry(cases, largest):
    channels = cases.pick(1, 3, 4)
    height, width = cases.whole(1, largest), cases.whole(1, largest)
    step = cases.pick("crop", "center-crop", "pad", "flip", "rotate", "letterbox", "color")
    channels = 3 if step == "letterbox" else channels
    image, given = cases.noise((height, width, channels))
    given["color"] = COLORS[channels]
    bar = 0
    if step == "crop":
        top, left = (int(cases.rng.integers(-5, side + 5)) for side in (height, width))
        high, wide = cases.whole(1, largest), cases.whole(1, largest)
        # torchvision gives another size for what lies wholly outside.
        if top + high <= 0 or left + wide <= 0 or top >= height or left >= width:
            return
        options = {"top": top, "left": left, "height": high, "width": wide}
        result = pixels(F.crop(planes(image), top, left, high, wide))
    elif step == "center-crop":
        options = {"size": [cases.whole(1, largest), cases.whole(1, largest)]}
        result = pixels(F.center_crop(planes(image), options["size"]))
    elif step == "pad":
        mode = cases.pick("constant", "edge", "reflect", "symmetric")
        most = min(height, width) - (mode == "reflect") if mode in ("reflect", "symmetric") else 9
        padding = [int(cases.rng.integers(0, most + 1)) for _ in range(4)]
        options = {"padding": padding, "mode": mode} | ({"fill": 114} if mode == "constant" else {})
        result = pixels(F.pad(planes(image), padding, fill=114, padding_mode=mode))
    elif step == "flip":
        options = {"direction": cases.pick("horizontal", "vertical", "both")}
        axes = {"horizontal": 1, "vertical": 0, "both": (0, 1)}[options["direction"]]
        result = np.flip(image, axes)
    elif step == "rotate":
        filter = cases.pick("nearest", "bilinear", "bicubic")
        fill = 0 if channels == 4 else cases.pick(0, 60)
        options = {"degrees": round(cases.rng.uniform(-400, 400), 1), "expand": cases.pick(True, False), "filter": filter, "fill": fill}
        color = fill if channels == 1 else (fill,) * channels
        turned = pillow(image).rotate(options["degrees"], PILLOW[filter], expand=options["expand"], fillcolor=color)
        result = array(turned)
    elif step == "letterbox":
        options = {"size": [cases.whole(4, largest), cases.whole(4, largest)], "scaleup": cases.pick(True, False), "center": cases.pick(True, False)}
        options |= {"auto": True, "stride": cases.pick(2, 8)} if cases.rng.random() < 0.3 else {}
        scale = min(options["size"][0] / height, options["size"][1] / width)
        # cv2 has no picture without pixels.
        if round(min(height, width) * scale) < 1:
            return
        result, bar = letterboxed(image, **options), 1
    else:
        to, mode = cases.pick(("gray", "L"), ("rgb", "RGB"), ("rgba", "RGBA"), ("bgr", "RGB"))
        options = {"to": to}
        result = array(pillow(image).convert(mode))
        result = result[..., ::-1] if to == "bgr" else result
    cases.add(step, options, given, result, bar)


# --- sounds -------------------------------------------------------------------------------------


def voices(cases, rate, channels, length):
    time = np.arange(length)[:, None] / rate
    tones = np.sin(2 * np.pi * cases.rng.uniform(50, rate / 3, channels) * time) * cases.rng.uniform(0, 0.5, channels)
    swell = np.abs(np.sin(2 * np.pi * cases.rng.uniform(1, 20, channels) * time))
    return (tones * swell + cases.rng.normal(0, cases.pick(0.001, 0.05, 0.2), (length, channels))).astype(np.float32)


def uncoupled(samples, rate, quality):
    """Vorbis whose channels are not coupled: soundfile has no word for it."""
    with tempfile.TemporaryDirectory() as folder:
        soundfile.write(f"{folder}/sound.wav", samples, rate, subtype="PCM_16")
        command = ["oggenc", "--quiet", "--serial", "1", "-q", str(quality), "--advanced-encode-option", "disable_coupling"]
        subprocess.run([*command, "-o", f"{folder}/sound.ogg", f"{folder}/sound.wav"], check=True, stderr=subprocess.DEVNULL)
        return Path(f"{folder}/sound.ogg").read_bytes()


def decode_audio(cases, _):
    format = cases.pick("WAV", "FLAC", "OGG", "OGG", "MP3")
    rate = cases.pick(8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
    channels = cases.pick(1, 2) if format == "MP3" else cases.pick(1, 2, 3, 4, 5, 6, 7, 8)
    length = cases.whole(1, 3000) if cases.rng.random() < 0.3 else int(cases.rng.integers(1000, 6000))
    samples = np.clip(voices(cases, rate, channels, length), -1, 1)
    buffer = io.BytesIO()
    how = {"MP3": ["MPEG_LAYER_III"], "OGG": ["VORBIS"], "FLAC": ["PCM_S8", "PCM_16", "PCM_24"]}
    how["WAV"] = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "ULAW", "ALAW"]
    subtype = cases.pick(*how[format])
    if format == "OGG" and channels == 2 and cases.rng.random() < 0.5:
        data, subtype = uncoupled(samples, rate, cases.whole(1, 10)), "VORBIS uncoupled"
    else:
        level = {"compression_level": float(cases.rng.random())} if format in ("OGG", "MP3") else {}
        try:
            soundfile.write(buffer, samples, rate, format=format, subtype=subtype, **level)
        except soundfile.LibsndfileError:
            # Some rates are without some numbers of channels.
            return
        data = with_serial(buffer.getvalue()) if format == "OGG" else buffer.getvalue()
    mono = cases.pick(True, False)
    sound, _ = librosa.load(io.BytesIO(data), sr=None, mono=mono)
    sound = sound if mono else np.atleast_2d(sound)
    name = f"decode {format} {subtype}, {'one channel' if channels == 1 else 'two' if channels == 2 else 'more'}"
    cases.add("decode-audio", {"mono": mono}, cases.file(data), sound, 0 if format in ("WAV", "FLAC") else 2e-5, name)


def heard(cases, lengths, rate):
    shape = (cases.whole(*lengths),)
    shape = shape if cases.rng.random() < 0.7 else (cases.whole(1, 3), *shape)
    quiet = cases.pick(1.0, 1.0, 2.0**-8)
    sound, given = cases.noise(shape, "float32", low=-quiet, high=quiet)
    return sound, given | {"rate": rate}


def resample(cases, _):
    rates = [8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 96000]
    rate = lambda: cases.pick(*rates, 25 * cases.whole(100, 2000))
    old, new = rate(), rate()
    sound, given = heard(cases, (1, 3000), old)
    method = cases.pick("sinc", "polyphase")
    if method == "sinc":
        result = torchaudio.functional.resample(torch.from_numpy(sound), old, new).numpy()
    else:
        result = scipy.signal.resample_poly(sound, new, old, axis=-1)
    cases.add("resample", {"to": new, "method": method}, given, result, 2e-6, f"resample {method}")


def mel(cases, _):
    rate = cases.pick(8000, 16000, 22050, 44100)
    sound, given = heard(cases, (1, 4000), rate)
    if cases.rng.random() < 0.15:
        sound, given = (sound, given) if sound.ndim == 1 else (sound[0], None)
        if given is None:
            return
        extractor = WhisperFeatureExtractor(feature_size=cases.pick(80, 128), chunk_length=cases.pick(1, 2))
        given["rate"] = 16000
        features = extractor(sound, sampling_rate=16000, return_tensors="np")["input_features"][0]
        options = {"method": "whisper", "n_mels": extractor.feature_size, "chunk_length": extractor.chunk_length}
        cases.add("mel-spectrogram", options, given, features, 1e-4, "mel whisper")
        return
    n_fft = cases.whole(32, 1500)
    options = {"n_fft": n_fft, "hop_length": cases.whole(n_fft // 8 + 1, 2 * n_fft), "n_mels": cases.whole(4, 100)}
    options |= {"win_length": cases.whole(8, n_fft)} if cases.rng.random() < 0.3 else {}
    options |= {"fmin": cases.whole(1, 300), "fmax": cases.whole(1000, rate // 2)} if cases.rng.random() < 0.3 else {}
    options |= {"htk": True} if cases.rng.random() < 0.3 else {}
    options |= {"norm": "none"} if cases.rng.random() < 0.3 else {}
    options |= {"power": cases.pick(1.0, 1.5)} if cases.rng.random() < 0.3 else {}
    options |= {"pad_mode": cases.pick("reflect", "edge", "constant")} if cases.rng.random() < 0.5 else {"center": False}
    if options.get("center") is False and sound.shape[-1] < n_fft:
        return
    db = cases.rng.random() < 0.3
    if db:
        options |= {"db": True, "top_db": cases.pick(80.0, 30.0), "ref": cases.pick("max", 1.0, 0.01)}
    result = librosa_mel(sound, rate, options)
    bar = 1e-4 if db else max(1e-6 * float(np.abs(result).max()), 1e-20)
    cases.add("mel-spectrogram", options, given, result, bar, "mel in decibels" if db else "mel")


def other_sounds(cases, _):
    step = cases.pick("mfcc", "mono", "frame", "pad-or-trim")
    if step == "mfcc":
        mels, frames = cases.whole(4, 100), cases.whole(1, 20)
        bands, given = cases.noise((mels, frames), "float32", low=-64.0, high=64.0)
        options = {"n_mfcc": cases.whole(1, mels)} | cases.pick({}, {"lifter": float(cases.whole(1, 40))}, {"norm": "none"})
        asked = {**options, "norm": None} if options.get("norm") == "none" else options
        result = librosa.feature.mfcc(S=bands, **asked)
        cases.add(step, options, given, result, max(1e-5 * float(np.abs(result).max()), 1e-6))
        return
    sound, given = heard(cases, (1, 500), 16000)
    if step == "mono":
        options, result = {}, librosa.to_mono(sound)
    elif step == "frame":
        length = cases.whole(1, sound.shape[-1])
        options = {"frame_length": length, "hop_length": cases.whole(1, 100)}
        result = librosa.util.frame(sound, **options)
    else:
        options = {"length": cases.whole(1, 600)}
        result = librosa.util.fix_length(sound, size=options["length"])
    cases.add(step, options, given, result)


IMAGES = [(resize, 5), (decode_image, 3), (geometry, 2)]
SOUNDS = [(decode_audio, 3), (resample, 3), (mel, 3), (other_sounds, 1)]
GROUPS = {"image": IMAGES, "audio": SOUNDS, "geometry": GEOMETRY, "readers": READERS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200, help="for each group (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "random")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="default: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for group in arguments.groups:
        cases = Cases(arguments.seed)
        turns = [part for part, share in GROUPS[group] for _ in range(share)]
        # Not all pictures are small, where there are many cases.
        largest = 60 if arguments.cases <= 200 else 200
        while len(cases.cases) < arguments.cases:
            turns[int(cases.rng.integers(len(turns)))](cases, largest)
        cases.write(arguments.out / group)


if __name__ == "__main__":
    main()
