"""Makes an ordinary photo of a handwritten digit out of an 8x8 scan."""

import numpy as np
from PIL import Image


def photo(digit: np.ndarray, size: tuple[int, int], dark_ink: bool, rng: np.random.Generator) -> np.ndarray:
    """A gray photo, `uint8 [height, width]`, of `digit` (8x8, 0 to 16) somewhere on unevenly lit paper.

    The digit is 30 to 60 % of the frame's shorter side, turned by up to 12 degrees.
    """
    width, height = size
    ink = stroke(digit, rng.uniform(0.3, 0.6) * min(size), rng)
    mask = np.zeros((height, width))
    top = rng.integers(0, height - ink.shape[0] + 1)
    left = rng.integers(0, width - ink.shape[1] + 1)
    mask[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    mask = np.maximum(mask, specks(size, rng))

    paper, pen = rng.uniform(170, 235), rng.uniform(25, 90)
    if not dark_ink:
        paper, pen = rng.uniform(25, 75), rng.uniform(180, 240)
    reflected = paper * texture(size, rng) * (1 - mask) + pen * mask
    lit = reflected * light(size, rng) + rng.normal(0, rng.uniform(1, 6), (height, width))
    return np.clip(np.round(lit), 0, 255).astype(np.uint8)


def stroke(digit, length, rng):
    """The digit's ink from 0 to 1, `length` pixels high before it is turned, with the soft edge of a pen."""
    padded = Image.fromarray(np.pad(digit / 16, 2).astype(np.float32))
    side = max(round(length * 12 / 8), 12)
    turned = padded.resize((side, side), Image.Resampling.BICUBIC).rotate(
        rng.uniform(-12, 12), Image.Resampling.BICUBIC
    )
    ink = np.clip((np.asarray(turned) - rng.uniform(0.35, 0.5)) / 0.15 + 0.5, 0, 1)
    rows, cols = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    edge = max(side // 16, 2)
    return np.pad(ink[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1], edge)


def specks(size, rng):
    """A few small dots of dirt."""
    width, height = size
    y, x = np.mgrid[:height, :width]
    dirt = np.zeros((height, width))
    for _ in range(rng.integers(0, 5)):
        radius = rng.uniform(0.003, 0.01) * min(size)
        distance = np.hypot(x - rng.uniform(0, width), y - rng.uniform(0, height))
        dirt = np.maximum(dirt, np.clip(radius - distance + 0.5, 0, rng.uniform(0.3, 0.9)))
    return dirt


def texture(size, rng):
    """Paper fibres: smooth random patches at two scales, around 1."""
    grain = np.ones((size[1], size[0]))
    for cells, depth in [(12, 0.015), (60, 0.015)]:
        patches = Image.fromarray(rng.normal(0, depth, (cells, cells)).astype(np.float32))
        grain += np.asarray(patches.resize(size, Image.Resampling.BICUBIC))
    return grain


def light(size, rng):
    """A lamp to one side: a slope across the photo and darker corners, at most 1."""
    width, height = size
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    angle, slope, corners = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.2), rng.uniform(0, 0.1)
    return 1 - slope * (1 + (x * np.cos(angle) + y * np.sin(angle)) / np.sqrt(2)) - corners * (x * x + y * y)
