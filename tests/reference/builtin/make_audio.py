"""Writes the numbers that the audio steps are compared with (`host/steps/src/audio/reference.rs`).

    python -m venv venv && venv/bin/pip install -r requirements-audio.txt && venv/bin/python make_audio.py

Everything under `audio/` comes from here: the reference library computes it, the tests read it. A
second run writes the same bytes.
"""

import io
import json
import shutil
import struct
import warnings
from pathlib import Path

import librosa
import numpy as np
import scipy.signal
import soundfile
import torch
from PIL import Image

# torchaudio refuses to load beside a PyTorch built for another CUDA; its resampler needs none.
torch.version.cuda = None
import torchaudio  # noqa: E402
from transformers import WhisperFeatureExtractor  # noqa: E402

HERE = Path(__file__).parent / "audio"
RNG = np.random.default_rng(11)
torch.set_num_threads(1)
warnings.simplefilter("ignore")


def folder(name):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


class Blob:
    """Float32 numbers one after the other; a case says where its own start."""

    def __init__(self):
        self.parts = []
        self.length = 0

    def put(self, array):
        array = np.ascontiguousarray(array, dtype=np.float32)
        start = self.length
        self.parts.append(array.ravel())
        self.length += array.size
        return {"at": start, "shape": list(array.shape)}

    def write(self, path):
        """As a gray PNG: compressed, and read by the decoder that is there anyway. The four bytes of the
        numbers lie apart, which compresses better."""
        numbers = np.concatenate(self.parts)
        numbers = np.pad(numbers, (0, -numbers.size % 128))
        parts = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 4).T)
        Image.fromarray(parts.reshape(-1, 512)).save(path, optimize=True)


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


# --- signals ------------------------------------------------------------------------------------


def sine(rate, length, frequency=440.0, height=0.5):
    return (height * np.sin(2 * np.pi * frequency * np.arange(length) / rate)).astype(np.float32)


def chirp(rate, length):
    return (0.7 * scipy.signal.chirp(np.arange(length) / rate, 50, length / rate, rate * 0.45)).astype(np.float32)


def noise(length, height=0.3):
    return np.clip(RNG.normal(0, height, length), -1, 1).astype(np.float32)


def clipped(rate, length):
    return np.clip(4 * sine(rate, length, 300.0, 1.0), -1, 1)


def speechlike(rate, length):
    """A voice's harmonics under slow envelopes, and breath."""
    time = np.arange(length) / rate
    pitch = 120 + 30 * np.sin(2 * np.pi * 2.3 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase) / k for k in range(1, 20) if k * 150 < rate / 2)
    envelope = np.clip(np.sin(2 * np.pi * 1.7 * time), 0, 1) ** 2
    return (0.2 * voice * envelope + noise(length, 0.005)).astype(np.float32)


# --- decode-audio -------------------------------------------------------------------------------


def ogg_checksum(page):
    checksum = 0
    for byte in page:
        checksum ^= byte << 24
        for _ in range(8):
            checksum = (checksum << 1) ^ (0x04C11DB7 if checksum & 0x80000000 else 0)
        checksum &= 0xFFFFFFFF
    return checksum


def with_serial(data, serial=1):
    """libsndfile draws the number of a stream by the clock; this writes another, so that runs agree."""
    pages = b""
    while data:
        count = data[26]
        size = 27 + count + sum(data[27 : 27 + count])
        page = bytearray(data[:size])
        page[14:18] = struct.pack("<I", serial)
        page[22:26] = bytes(4)
        page[22:26] = struct.pack("<I", ogg_checksum(page))
        pages, data = pages + bytes(page), data[size:]
    return pages


def sound_file(samples, rate, format, subtype):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=format, subtype=subtype)
    data = buffer.getvalue()
    return with_serial(data) if format == "OGG" else data


def wav(format_tag, bits, channels, rate, data, *, before=b"", data_size=None, riff_size=None, sample=None):
    size = (sample or bits // 8) * channels
    header = struct.pack("<HHIIHH", format_tag, channels, rate, rate * size, size, bits)
    chunks = b"fmt " + struct.pack("<I", len(header)) + header + before
    stated = len(data) if data_size is None else data_size
    chunks += b"data" + struct.pack("<I", stated) + data
    whole = 4 + len(chunks) if riff_size is None else riff_size
    return b"RIFF" + struct.pack("<I", whole) + b"WAVE" + chunks


def rf64(name, data, after, bits=16):
    """A WAV with 64-bit sizes, and a chunk behind the samples."""
    start = wav(1, bits, 1, 16000, data, before=b"", data_size=0xFFFFFFFF)[12:]
    chunks = start + bytes(len(data) % 2) + after
    sizes = struct.pack("<QQQI", 4 + 36 + len(chunks), len(data), len(data) * 8 // bits, 0)
    return name + b"\xff\xff\xff\xffWAVEds64" + struct.pack("<I", len(sizes)) + sizes + chunks


def with_length(flac, samples):
    """A FLAC file that states another number of samples; 0 is none."""
    return flac[:21] + bytes([flac[21] & 0xF0]) + struct.pack(">I", samples) + flac[26:]


def tolerated(files):
    """What encoders and taggers write beside the standards."""
    rng = np.random.default_rng(29)
    numbers = rng.integers(-32768, 32768, 301, dtype=np.int16).tobytes()
    files["12bit.wav"] = wav(1, 12, 1, 16000, numbers, sample=2)
    files["20bit.wav"] = wav(1, 20, 2, 16000, numbers[:600], sample=3)
    files["a-law-16bit.wav"] = wav(6, 16, 1, 8000, bytes(range(256)), sample=1)
    files["u-law-0bit.wav"] = wav(7, 0, 2, 8000, bytes(range(256)), sample=1)
    info = b"LIST" + struct.pack("<I", 12) + b"INFOIART\0\0\0\0"
    files["rf64-list.wav"] = rf64(b"RF64", numbers, info)
    files["rf64-odd.wav"] = rf64(b"RF64", numbers[:301], info, 8)
    tag = b"TAG" + bytes(125)
    files["tagged.flac"] = files["s16.flac"] + tag
    files["padded.flac"] = files["s16.flac"] + b"\xff" * 700
    # Cut within a frame; the next ones refer to what is missing. Their headers follow each other by these lengths.
    for name, frame in {"stereo": 3340, "48k": 1152}.items():
        files[f"cut-start-{name}.mp3"] = files[f"{name}.mp3"][frame - 50 :]
    files["no-least-block.flac"] = files["s24.flac"][:8] + bytes(2) + files["s24.flac"][10:]


def decode():
    out = folder("decode")
    files = {}

    def put(name, samples, rate, format, subtype):
        files[name] = sound_file(samples, rate, format, subtype)

    stereo = lambda rate, length: np.stack([speechlike(rate, length), chirp(rate, length)], -1)
    put("u8.wav", speechlike(8000, 900), 8000, "WAV", "PCM_U8")
    put("s16.wav", stereo(16000, 700), 16000, "WAV", "PCM_16")
    put("s24.wav", chirp(44100, 600), 44100, "WAV", "PCM_24")
    put("s32.wav", stereo(48000, 500), 48000, "WAV", "PCM_32")
    # libsndfile would write the time of day into these.
    files["float.wav"] = wav(3, 32, 1, 22050, (3 * noise(500)).tobytes())
    files["double.wav"] = wav(3, 64, 2, 11025, stereo(11025, 300).astype("<f8").tobytes())
    put("a-law.wav", speechlike(8000, 900), 8000, "WAV", "ALAW")
    put("u-law.wav", stereo(8000, 500), 8000, "WAV", "ULAW")
    put("extensible.wav", np.stack([noise(200)] * 6, -1) * np.arange(1, 7, dtype=np.float32) / 6, 48000, "WAVEX", "PCM_24")
    put("rf64.wav", stereo(16000, 200), 16000, "RF64", "PCM_16")
    put("clipped.wav", clipped(16000, 400), 16000, "WAV", "PCM_16")
    put("silence.wav", np.zeros(400, dtype=np.float32), 16000, "WAV", "PCM_16")
    put("one.wav", sine(16000, 2)[1:], 16000, "WAV", "PCM_16")
    put("empty.wav", np.zeros(0, dtype=np.float32), 16000, "WAV", "PCM_16")
    numbers = RNG.integers(-32768, 32768, 301, dtype=np.int16).tobytes()
    files["codes-a-law.wav"] = wav(6, 8, 1, 8000, bytes(range(256)))
    files["codes-u-law.wav"] = wav(7, 8, 1, 8000, bytes(range(256)))
    files["cut-off.wav"] = wav(1, 16, 1, 16000, numbers)[:-101]
    files["never-finished.wav"] = wav(1, 16, 1, 16000, numbers, data_size=0, riff_size=8)
    files["of-a-pipe.wav"] = wav(1, 16, 1, 16000, numbers, data_size=0xFFFFFFFF, riff_size=0xFFFFFFFF)
    files["no-samples.wav"] = wav(1, 16, 1, 16000, b"") + b"LIST" + struct.pack("<I", 4) + b"INFO"
    files["with-a-list.wav"] = wav(1, 16, 2, 16000, numbers[:600], before=b"LIST" + struct.pack("<I", 5) + b"INFOx\0") + b"junk"
    files["not-finite.wav"] = wav(3, 32, 1, 16000, np.array([0, np.nan, np.inf, -np.inf, 1e30], dtype="<f4").tobytes())

    put("s8.flac", speechlike(8000, 900), 8000, "FLAC", "PCM_S8")
    put("s16.flac", stereo(16000, 5000), 16000, "FLAC", "PCM_16")
    put("s24.flac", stereo(48000, 900), 48000, "FLAC", "PCM_24")
    put("noise.flac", noise(700, 0.9), 44100, "FLAC", "PCM_16")
    put("silence.flac", np.zeros(9000, dtype=np.float32), 22050, "FLAC", "PCM_16")
    put("one.flac", sine(16000, 2)[1:], 16000, "FLAC", "PCM_16")
    put("six.flac", np.stack([noise(300) for _ in range(6)], -1), 48000, "FLAC", "PCM_16")

    put("mono.ogg", speechlike(16000, 6000), 16000, "OGG", "VORBIS")
    put("stereo.ogg", stereo(44100, 7000), 44100, "OGG", "VORBIS")
    put("8k.ogg", speechlike(8000, 3000), 8000, "OGG", "VORBIS")
    put("short.ogg", sine(22050, 100), 22050, "OGG", "VORBIS")
    put("clipped.ogg", clipped(48000, 4000), 48000, "OGG", "VORBIS")
    put("silence.ogg", np.zeros(5000, dtype=np.float32), 16000, "OGG", "VORBIS")

    put("mono.mp3", speechlike(16000, 6000), 16000, "MP3", "MPEG_LAYER_III")
    put("stereo.mp3", stereo(44100, 7000), 44100, "MP3", "MPEG_LAYER_III")
    put("48k.mp3", chirp(48000, 5000), 48000, "MP3", "MPEG_LAYER_III")
    put("22k.mp3", stereo(22050, 4000), 22050, "MP3", "MPEG_LAYER_III")
    put("8k.mp3", speechlike(8000, 3000), 8000, "MP3", "MPEG_LAYER_III")
    put("short.mp3", sine(44100, 100), 44100, "MP3", "MPEG_LAYER_III")
    put("clipped.mp3", clipped(44100, 4000), 44100, "MP3", "MPEG_LAYER_III")
    put("silence.mp3", np.zeros(5000, dtype=np.float32), 16000, "MP3", "MPEG_LAYER_III")
    buffer = io.BytesIO()
    rising = speechlike(22050, 9000) * np.linspace(0, 1, 9000, dtype=np.float32) ** 4
    soundfile.write(buffer, rising, 22050, format="MP3", bitrate_mode="VARIABLE", compression_level=0.3)
    files["variable.mp3"] = buffer.getvalue()
    files["does-not-say.mp3"] = files["variable.mp3"].replace(b"Xing", bytes(4)).replace(b"Info", bytes(4))
    files["cut-off.mp3"] = files["stereo.mp3"][:-300]
    files["tagged.mp3"] = b"ID3\x04\0\0\0\0\x01\x05" + bytes(133) + files["mono.mp3"] + b"TAG" + bytes(125)

    tolerated(files)
    blob, index = Blob(), {}
    for name, data in files.items():
        (out / name).write_bytes(data)
        # libsndfile takes no other bytes before the first frame.
        sound = data[50:] if name.startswith("cut-start") else data
        apart, rate = librosa.load(io.BytesIO(sound), sr=None, mono=False)
        # librosa refuses to mix what is not finite.
        mixed = librosa.to_mono(apart) if apart.ndim > 1 else apart
        index[name] = {"rate": int(rate), "mono": blob.put(mixed), "apart": blob.put(np.atleast_2d(apart))}
    write_json(out / "index.json", index)
    blob.write(out / "samples.png")


# --- resample -----------------------------------------------------------------------------------

RATES = [
    (8000, 16000), (11025, 16000), (22050, 16000), (24000, 16000), (32000, 16000), (44100, 16000), (48000, 16000),
    (16000, 8000), (48000, 8000), (44100, 22050), (16000, 22050), (44100, 48000), (48000, 44100), (16000, 48000),
    (16000, 44100), (44100, 11025), (16000, 16001), (16000, 16000),
]  # fmt: skip


def resample():
    out = folder("resample")
    blob, cases = Blob(), []
    for from_rate, to_rate in RATES:
        length = from_rate // 20 if to_rate != 16001 else 300
        sounds = [np.stack([chirp(from_rate, length), noise(length)])]
        if (from_rate, to_rate) in [(44100, 16000), (8000, 16000), (48000, 44100)]:
            sounds += [clipped(from_rate, 100), sine(from_rate, 2)[1:]]
        for sound in sounds:
            given = blob.put(sound)
            wanted = {
                "sinc": torchaudio.functional.resample(torch.from_numpy(sound), from_rate, to_rate).numpy(),
                "polyphase": scipy.signal.resample_poly(sound, to_rate, from_rate, axis=-1),
            }
            for method, output in wanted.items():
                assert output.dtype == np.float32
                case = {"from": from_rate, "to": to_rate, "method": method, "input": given, "output": blob.put(output)}
                cases.append(case)
    write_json(out / "cases.json", cases)
    blob.write(out / "samples.png")


# --- mel-spectrogram, mfcc ----------------------------------------------------------------------

MEL = [
    {},
    {"n_fft": 400, "hop_length": 160, "n_mels": 80},
    {"n_fft": 512, "hop_length": 128, "win_length": 400, "n_mels": 40, "fmin": 20, "fmax": 7600},
    {"n_fft": 1024, "hop_length": 256, "n_mels": 64, "htk": True, "norm": "none"},
    {"n_fft": 1024, "hop_length": 320, "n_mels": 64, "power": 1.0, "pad_mode": "reflect"},
    {"n_fft": 401, "hop_length": 100, "n_mels": 20, "center": False},
    {"n_fft": 600, "hop_length": 700, "n_mels": 16, "pad_mode": "edge", "power": 1.5},
    {"n_fft": 2048, "hop_length": 512, "n_mels": 128, "db": True},
    {"n_fft": 1024, "hop_length": 256, "n_mels": 64, "db": True, "ref": "max", "top_db": 60},
    {"n_fft": 1024, "hop_length": 256, "n_mels": 64, "db": True, "ref": 20.0, "amin": 1e-5, "top_db": None},
]


def librosa_mel(sound, rate, options):
    options = dict(options)
    db = options.pop("db", False)
    ref, amin, top_db = options.pop("ref", 1.0), options.pop("amin", 1e-10), options.pop("top_db", 80.0)
    if options.get("norm") == "none":
        options["norm"] = None
    mel = librosa.feature.melspectrogram(y=sound, sr=rate, **options)
    if not db:
        return mel
    return librosa.power_to_db(mel, ref=np.max if ref == "max" else ref, amin=amin, top_db=top_db)


def mel():
    out = folder("mel")
    blob, cases = Blob(), []
    sounds = {
        "speech": (16000, speechlike(16000, 8000)),
        "chirp": (22050, chirp(22050, 9000)),
        "noise": (44100, noise(6000)),
        "sine": (8000, sine(8000, 4000)),
        "clipped": (48000, clipped(48000, 6000)),
        "silence": (16000, np.zeros(4000, dtype=np.float32)),
    }
    for place, (name, (rate, sound)) in enumerate(sounds.items()):
        given = blob.put(sound)
        for number, options in enumerate(MEL):
            # Each option with two of the sounds, to keep the files small.
            if "fmax" in options and options["fmax"] > rate / 2 or (number + place) % 3 == 0:
                continue
            output = librosa_mel(sound, rate, options)
            assert output.dtype == np.float32
            cases.append({"name": name, "rate": rate, "options": options, "input": given, "output": blob.put(output)})
    short = {"n_fft": 400, "hop_length": 160, "n_mels": 20}
    for length in [1, 2, 100, 201, 400]:
        sound = noise(length)
        given = blob.put(sound)
        for pad_mode in ["constant", "reflect", "edge"]:
            options = {**short, "pad_mode": pad_mode}
            output = blob.put(librosa_mel(sound, 16000, options))
            cases.append({"name": f"{length} samples", "rate": 16000, "options": options, "input": given, "output": output})
    nothing = np.zeros(0, dtype=np.float32)
    output = blob.put(librosa_mel(nothing, 16000, short))
    cases.append({"name": "no samples", "rate": 16000, "options": short, "input": blob.put(nothing), "output": output})
    write_json(out / "cases.json", cases)

    whisper = []
    for n_mels, seconds, sound in [
        (80, 1, speechlike(16000, 16000)),
        (128, 1, noise(9000)),
        (80, 1, np.zeros(8000, dtype=np.float32)),
        (80, 1, clipped(16000, 40000)),
        (80, 1, nothing),
        (80, 1, noise(100)),
        (80, 30, speechlike(16000, 5000)),
    ]:
        extractor = WhisperFeatureExtractor(feature_size=n_mels, chunk_length=seconds)
        features = extractor(sound, sampling_rate=16000, return_tensors="np")["input_features"][0]
        # All that follows the first frames of a 30-second window is the same number.
        kept = features[:, :100]
        assert (features[:, 100:] == features[0, -1]).all()
        options = {"method": "whisper", "n_mels": n_mels, "chunk_length": seconds}
        case = {"options": options, "frames": features.shape[1], "input": blob.put(sound), "output": blob.put(kept)}
        whisper.append(case)
    write_json(out / "whisper.json", whisper)

    mfcc = []
    for options in [{}, {"n_mfcc": 13}, {"n_mfcc": 13, "lifter": 22.0}, {"n_mfcc": 40, "norm": "none"}]:
        for name in ["speech", "silence"]:
            rate, sound = sounds[name]
            mel_options = {"n_fft": 1024, "hop_length": 256, "n_mels": 64}
            given = librosa_mel(sound, rate, {**mel_options, "db": True})
            asked = {**options, "norm": None} if options.get("norm") == "none" else options
            output = librosa.feature.mfcc(S=given, **asked)
            mfcc.append({"options": options, "input": blob.put(given), "output": blob.put(output)})
    write_json(out / "mfcc.json", mfcc)
    blob.write(out / "samples.png")


# --- frame --------------------------------------------------------------------------------------


def frame():
    out = folder("frame")
    cases = []
    for shape, length, hop in [((10,), 4, 2), ((10,), 4, 3), ((2, 9), 3, 1), ((5,), 5, 7), ((2, 6), 2, 5)]:
        sound = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for axis in [-1, 0] if sound.ndim == 1 else [-1]:
            frames = librosa.util.frame(sound, frame_length=length, hop_length=hop, axis=axis)
            cases.append({
                "shape": shape, "options": {"frame_length": length, "hop_length": hop, "frames": "last" if axis == -1 else "first"},
                "output": {"shape": frames.shape, "data": frames.ravel().tolist()},
            })  # fmt: skip
    write_json(out / "cases.json", cases)


if __name__ == "__main__":
    decode()
    resample()
    mel()
    frame()
