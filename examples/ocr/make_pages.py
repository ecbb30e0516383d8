"""Draws pages of text from a fixed seed: Latin and Chinese, of several sizes, in columns, turned, with noise.

    python3 make_pages.py FOLDER [COUNT]
    python3 make_pages.py --large FOLDER [COUNT]
    python3 make_pages.py --strips FOLDER
    python3 make_pages.py --sample tests/page/page.png

Needs pillow and numpy, and Debian's packages fonts-dejavu-core and fonts-wqy-zenhei.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

LATIN = [f"/usr/share/fonts/truetype/dejavu/{name}.ttf" for name in ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono")]
CHINESE = "/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc"
WORDS = """the of and to in is was for with on that by from at as are were this which have been one their more other
invoice total amount date number street market river mountain winter summer yellow window paper letter station
Berlin Paris London Geneva Monday Friday January August 2024 1987 42 3.14 100% $7.50 A-17 (see) No. 5, e.g. it's""".split()
SIGNS = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比或但质气第向道命此变条"


def line(random):
    if random.random() < 0.4:
        return "".join(random.choice(list(SIGNS), random.integers(4, 18))), CHINESE
    return " ".join(random.choice(WORDS, random.integers(2, 8))), LATIN[random.integers(len(LATIN))]


def page(random, sides=(500, 1500), sizes=(18, 40)):
    width, height = int(random.integers(*sides)), int(random.integers(*sides))
    ground = int(random.integers(215, 256))
    image = Image.new("RGB", (width, height), (ground, ground, int(ground * random.uniform(0.9, 1))))
    draw = ImageDraw.Draw(image)
    columns = 1 + int(random.random() < 0.3 and width > 900)
    size = int(random.integers(*sizes))
    for column in range(columns):
        left, y = 30 + column * width // columns, int(random.integers(20, 60))
        while y < height - 2 * size:
            text, name = line(random)
            font = ImageFont.truetype(name, size + int(random.integers(-4, 5)))
            while text and draw.textlength(text, font) > width // columns - 60:
                text = text[:-1]
            ink = tuple(int(part) for part in random.integers(0, 90, 3))
            draw.text((left, y), text.strip(), fill=ink, font=font)
            y += int(size * random.uniform(1.5, 2.6))
    kind = random.random()
    if kind < 0.3:
        image = image.rotate(random.uniform(-6, 6), Image.Resampling.BICUBIC, expand=True, fillcolor=(ground,) * 3)
    elif kind < 0.4:
        image = image.rotate(180)
    elif kind < 0.5:
        image = image.rotate(90, expand=True)
    if random.random() < 0.4:
        noise = random.normal(0, random.uniform(2, 14), (image.height, image.width, 3))
        image = Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))
    return image


def strips(random, folder):
    """Single lines, from hardly wider than high to much wider."""
    for width, height in ((2000, 20), (1200, 16), (5000, 12), (3000, 60), (900, 100), (400, 30), (250, 25), (640, 64)):
        image = Image.new("RGB", (width, height), (236, 240, 244))
        draw, x = ImageDraw.Draw(image), 4
        while x < width - 2 * height:
            text, name = line(random)
            font = ImageFont.truetype(name, int(height * 0.66))
            draw.text((x, height * 0.08), text, fill=(30, 40, 20), font=font)
            x += int(draw.textlength(text, font)) + height
        image.save(folder / f"{width}x{height}.png")


def sample():
    """A small receipt, a little turned."""
    image = Image.new("RGB", (420, 300), (246, 244, 238))
    draw = ImageDraw.Draw(image)
    for y, text, size, name in (
        (20, "Café am Fluss", 30, LATIN[1]),
        (72, "Table 7    2026-11-28", 18, LATIN[3]),
        (112, "2 × Espresso    5.80 €", 20, LATIN[0]),
        (146, "1 × Apple pie    4.50 €", 20, LATIN[0]),
        (190, "Total: 10.30 €", 26, LATIN[1]),
        (240, "谢谢光临，欢迎再来", 24, CHINESE),
    ):
        draw.text((36, y), text, fill=(40, 36, 44), font=ImageFont.truetype(name, size))
    return image.rotate(3, Image.Resampling.BICUBIC, fillcolor=(246, 244, 238))


def main():
    if sys.argv[1] == "--sample":
        return sample().save(sys.argv[2])
    kind, arguments = (sys.argv[1], sys.argv[2:]) if sys.argv[1].startswith("--") else ("", sys.argv[1:])
    folder, count = Path(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 12 if kind else 60
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(47)
    if kind == "--strips":
        return strips(random, folder)
    for number in range(count):
        image = page(random, (2400, 4000), (40, 90)) if kind == "--large" else page(random)
        image.save(folder / f"{number:02}.png")


if __name__ == "__main__":
    main()
