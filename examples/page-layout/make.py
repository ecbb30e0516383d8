"""Makes the page: a title, text in two columns, a figure and a table. Needs pillow."""

import random
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WORDS = (
    "the model reads a page and finds where text figures tables and equations stand each with a box and a score so that "
    "further steps can read them one after the other"
).split()


def main():
    page = Image.new("RGB", (1000, 1300), "white")
    draw = ImageDraw.Draw(page)
    random.seed(1)

    def write(place, text, size):
        draw.text(place, text, fill="black", font=ImageFont.load_default(size=size))

    def paragraph(x, y, width, count, size=17):
        text = " ".join(random.choice(WORDS) for _ in range(count))
        for line in textwrap.wrap(text, int(width / (size * 0.5))):
            write((x, y), line, size)
            y += int(size * 1.35)
        return y

    write((90, 30), "Journal of Examples, vol. 1", 16)
    write((850, 30), "page 7", 16)
    write((170, 90), "Where Things Stand on a Page", 44)
    y = paragraph(80, 180, 400, 110)
    write((80, y + 14), "1 Introduction", 24)
    y = paragraph(80, y + 56, 400, 130)
    paragraph(80, y + 20, 400, 150)
    draw.rectangle((530, 190, 920, 460), fill=(225, 235, 245), outline="black")
    draw.line([(550, 210), (550, 440), (905, 440)], fill="black", width=2)
    draw.line([(550 + i * 10, 440 - int(abs((i * 37) % 97 - 48) * 3.6)) for i in range(36)], fill="red", width=3)
    paragraph(540, 470, 380, 16, 15)
    write((530, 560), "Table 1: the numbers of the figure", 16)
    for row in range(7):
        draw.line((530, 590 + row * 30, 920, 590 + row * 30), fill="black")
        cells = ["name", "first", "second", "third"] if row == 0 else [f"{random.random() * 100:.2f}" for _ in range(4)]
        for column, cell in enumerate(cells if row < 6 else []):
            write((542 + column * 98, 596 + row * 30), cell, 16)
    paragraph(530, 810, 400, 150)
    write((500, 1260), "7", 16)
    page.save(Path(__file__).parent / "tests/page/page.png", optimize=True)


if __name__ == "__main__":
    main()
