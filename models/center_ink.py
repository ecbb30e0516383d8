"""The algorithm of `guest-examples/rust/center-ink/src/ink/` in NumPy.

The component is the product; this copy lets the training script and `check_samples.py` centre digits without a
wasm toolchain. Both make the same decisions in the same order: change them together.
"""

import numpy as np
from scipy import ndimage

GRID = 64
MAX_CELL = 128
MIN_NOISE = 3.0
MIN_CONTRAST = 10.0
MAX_MARGIN = 4.0
SAMPLES = 20
ROUNDS = 6
PULLING_ROUNDS = 3
CELL_SHARE = 0.4
PAPER_SHARE = 0.3
INK_SHARE = 0.9
DEFAULT_MARGIN = 0.15
NEAR = np.ones((3, 3), bool)


class NoInk(ValueError):
    """Nothing in the image stands out from its background."""


def center(gray: np.ndarray, margin: float = DEFAULT_MARGIN) -> np.ndarray:
    """Crops the ink of a photo, `uint8 [height, width]`, to a square `uint8 [side, side]`: 0 paper, 255 ink.

    `margin` is the free space on each side as a fraction of the ink's longer side. Raises `NoInk`.
    """
    if gray.size == 0:
        raise NoInk
    cell, means = cell_means(gray)
    paper, noise = fit_paper(means)
    heights = means - paper
    dark, contrast = polarity(heights, noise)
    strengths = -heights if dark else heights
    kept = one_character(strengths, max(CELL_SHARE * contrast, noise))
    levels = np.where(ndimage.binary_dilation(kept, NEAR), paper, np.nan)
    ink = read_ink(gray, cell, levels, area_of(kept), dark, contrast)
    return center_in_square(ink, margin)


def cell_means(gray):
    """The length of a cell's side, and the mean of each whole cell."""
    height, width = gray.shape
    cell = 1
    while cell * GRID < max(gray.shape) and cell * 2 <= min(gray.shape) and cell < MAX_CELL:
        cell *= 2
    rows, cols = height // cell, width // cell
    whole = gray[: rows * cell, : cols * cell].astype(np.uint32)
    sums = whole.reshape(rows, cell, cols, cell).sum(axis=(1, 3))
    return cell, (sums / (cell * cell)).astype(np.float32)


def median(values):
    counts = np.bincount(np.clip(values, 0, 255).astype(np.uint8).ravel(), minlength=256)
    return float(np.argmax(np.cumsum(counts) > values.size // 2)) + 0.5


def spread(residuals):
    return max(2.5 * median(np.abs(residuals)), MIN_NOISE)


def axis(cells):
    """The basis (linear, square) at every cell of an axis, and the cells to sample."""
    sampled = np.arange(0, cells, max(cells // SAMPLES, 1))
    middle = sampled[-1] / 2
    linear = (np.arange(cells) - middle) / max(middle, 1.0)
    square = linear**2 - np.mean(linear[sampled] ** 2)
    return np.stack([np.ones(cells), linear, square]), sampled


def fit_paper(means):
    """The paper's level at each cell, a quadratic surface fitted robustly; and the noise around it."""
    (x, xs), (y, ys) = axis(means.shape[1]), axis(means.shape[0])
    terms = np.stack([y[j][:, None] * x[i][None, :] for i, j in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)]])
    sampled = terms[:, ys[:, None], xs[None, :]]
    norms = (sampled**2).mean(axis=(1, 2))
    scales = np.where(norms > 1e-6, 1 / np.maximum(norms, 1e-6), 0.0)

    values = means[ys[:, None], xs[None, :]].astype(np.float64)
    surface = np.zeros(6)
    surface[0] = median(values)
    residuals = values - surface[0]
    for step in range(ROUNDS):
        bound = spread(residuals)
        near = np.clip(residuals, -bound, bound)
        tamed = near if step < PULLING_ROUNDS else np.where(np.abs(residuals) <= bound, near, 0.0)
        change = (sampled * tamed).mean(axis=(1, 2)) * scales
        surface += change
        residuals -= np.tensordot(change, sampled, 1)
    return np.tensordot(surface, terms, 1), spread(residuals)


def polarity(heights, noise):
    """Whether the ink is darker than the paper, and by how many gray levels it differs."""
    above = np.where(heights > noise, heights, 0.0)
    below = np.where(-heights > noise, -heights, 0.0)
    dark = bool((below**2).sum() > (above**2).sum())
    beyond = below if dark else above
    contrast = (beyond**2).sum() / beyond.sum() if beyond.sum() > 0 else 0.0
    if contrast < max(MIN_CONTRAST, 2 * noise):
        raise NoInk
    return dark, contrast


def area_of(cells):
    """(top, bottom, left, right) of the cells that are set, ends included."""
    rows, cols = np.flatnonzero(cells.any(axis=1)), np.flatnonzero(cells.any(axis=0))
    return rows[0], rows[-1], cols[0], cols[-1]


def one_character(strengths, threshold):
    """The heaviest connected patch of ink, and what is close to it and not tiny."""
    labels, count = ndimage.label(strengths > threshold, NEAR)
    if count == 0:
        raise NoInk
    weights = ndimage.sum_labels(strengths, labels, range(1, count + 1))
    main = int(np.argmax(weights)) + 1
    top, bottom, left, right = area_of(labels == main)
    reach = (max(bottom - top, right - left) + 1) // 4 + 1
    kept = labels == main
    for label in range(1, count + 1):
        if weights[label - 1] >= weights[main - 1] / 10:
            t, b, l, r = area_of(labels == label)
            if max(max(t, top) - min(b, bottom), max(l, left) - min(r, right)) <= reach:
                kept |= labels == label
    return kept


def read_ink(gray, cell, levels, area, dark, contrast):
    """The pixels of the area and a cell around it as ink; 0 where `levels` is not a number."""
    top, bottom, left, right = area
    rows = slice(max(top - 1, 0), min(bottom + 1, levels.shape[0] - 1) + 1)
    cols = slice(max(left - 1, 0), min(right + 1, levels.shape[1] - 1) + 1)
    sign = -1 if dark else 1
    low = int(PAPER_SHARE * contrast)
    extent = max(int(INK_SHARE * contrast) - low, 1)
    gain = (255 * 64 + extent - 1) // extent

    levels = levels[rows, cols]
    rounded = np.floor(np.nan_to_num(levels) + 0.5).astype(np.int32)
    offsets = np.where(np.isnan(levels), -1024, -low - sign * rounded)
    offsets = offsets.repeat(cell, axis=0).repeat(cell, axis=1)
    pixels = gray[rows.start * cell : rows.stop * cell, cols.start * cell : cols.stop * cell].astype(np.int32)
    strengths = np.clip(sign * pixels + offsets, 0, extent)
    return np.minimum(strengths * gain >> 6, 255).astype(np.uint8)


def center_in_square(ink, margin):
    def inked(sums):
        kept = np.flatnonzero(sums > sums.max() // 12)
        if kept.size == 0:
            raise NoInk
        return slice(kept[0], kept[-1] + 1)

    sums = ink.astype(np.uint32)
    crop = ink[inked(sums.sum(axis=1)), inked(sums.sum(axis=0))]
    height, width = crop.shape
    free = int(np.floor(max(crop.shape) * np.clip(np.nan_to_num(margin), 0, MAX_MARGIN) + 0.5))
    side = max(crop.shape) + 2 * free
    square = np.zeros((side, side), np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = crop
    return square
