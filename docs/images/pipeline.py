#!/usr/bin/env python3
"""Draws docs/images/pipeline.svg: the top-level gpux.yml at work on models/samples/seven.png.

    docs/images/pipeline.py [GPUX]

GPUX is the program [default: target/release/gpux]; it makes every picture and score that is drawn.
"""

import ast
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GPUX = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/gpux"
PHOTO = ROOT / "models/samples/seven.png"
STEPS = (ROOT / "gpux.yml").read_text().split("pipeline:\n")[1].replace(" ./", f" {ROOT}/")


def pixels(last, shrink):
    """The rows of gray levels after step `last` of gpux.yml, shrunk to be drawn."""
    kept = []
    for line in STEPS.splitlines():
        if line.startswith("  - ") and any(kept_line.startswith(f"  - {last}") for kept_line in kept):
            break
        kept.append(line)
    if shrink:
        kept.append(f"  - resize: {{ size: {shrink}, filter: area }}")
    with tempfile.TemporaryDirectory() as folder:
        text = "name: part\nversion: 1\npipeline:\n" + "\n".join(kept) + "\n"
        (pathlib.Path(folder) / "gpux.yml").write_text(text)
        told = ["--allow-outside", "--format", "npy", "--output", f"{folder}/out", "--file", PHOTO]
        subprocess.run([GPUX, "run", folder, *told], check=True)
        data = next((pathlib.Path(folder) / "out").glob("*.npy")).read_bytes()
    end = data.index(b"\n") + 1
    height, width = ast.literal_eval(data[10:end].decode())["shape"][:2]
    return [list(data[end + y * width : end + (y + 1) * width]) for y in range(height)]


def drawn(rows, x, y, width):
    """Rectangles, one for each run of equal levels; levels in steps of 12."""
    cell = width / len(rows[0])
    out = []
    for j, row in enumerate(rows):
        start = 0
        for i in range(1, len(row) + 1):
            if i == len(row) or row[i] // 12 != row[start] // 12:
                level = min(255, row[start] // 12 * 12 + 6) if row[start] < 252 else 255
                out.append(
                    f'<rect x="{x + start * cell:.1f}" y="{y + j * cell:.1f}" width="{(i - start) * cell + 0.3:.1f}" '
                    f'height="{cell + 0.3:.1f}" fill="#{level:02x}{level:02x}{level:02x}"/>'
                )
                start = i
    return "".join(out)


def main():
    run = subprocess.run([GPUX, "run", ROOT, "--json", "--file", PHOTO], check=True, capture_output=True, text=True)
    top = json.loads(run.stdout)["top"]
    parts, arrow = [], '<path d="M{x} 75h22m-6 -5l6 5l-6 5" fill="none" stroke="#57606a" stroke-width="2"/>'
    text = '<text x="{x}" y="{y}" text-anchor="middle"{more}>{words}</text>'.format
    for x, width, step, shown, name, what in [
        (10, 140, "decode-image", [36, 48], "decode-image", "a photo"),
        (205, 105, "wasm", [40, 40], "center-ink.wasm", "your step, in a sandbox"),
        (365, 105, "resize", None, "resize, normalize", "8 × 8"),
    ]:
        parts.append(drawn(pixels(step, shown), x, 22, width))
        dash = ' stroke-dasharray="5 3"' if step == "wasm" else ""
        frame = "#8250df" if dash else "#57606a"
        border = f'fill="none" stroke="{frame}" stroke-width="2"{dash}'
        parts.append(f'<rect x="{x}" y="22" width="{width}" height="105" {border}/>')
        parts.append(text(x=x + width / 2, y=145, more="", words=name))
        parts.append(text(x=x + width / 2, y=162, more=' fill="#57606a" font-size="11"', words=what))
        parts.append(arrow.format(x=x + width + 16))
    border = 'fill="#ddf4ff" stroke="#0969da" stroke-width="2"'
    parts.append(f'<rect x="525" y="22" width="90" height="105" rx="8" {border}/>')
    parts.append(text(x=570, y=79, more="", words="ONNX"))
    parts.append(text(x=570, y=145, more="", words="model"))
    parts.append(text(x=570, y=162, more=' fill="#57606a" font-size="11"', words="CPU or GPU"))
    parts.append(arrow.format(x=631))
    for place, entry in enumerate(top):
        y = 48 + 28 * place
        length = max(1.5, 70 * entry["score"])
        parts.append(f'<rect x="715" y="{y - 12}" width="{length:.1f}" height="16" fill="#9ec5eb"/>')
        parts.append(f'<text x="668" y="{y}">{entry["label"]}</text>')
        parts.append(f'<text x="720" y="{y}" font-size="12">{100 * entry["score"]:.2f} %</text>')
    parts.append(text(x=725, y=145, more="", words="softmax, top-k"))
    parts.append(text(x=725, y=162, more=' fill="#57606a" font-size="11"', words="JSON, or HTTP and gRPC"))
    style = 'font-family="system-ui, sans-serif" font-size="13" fill="#1f2328"'
    label = "A photo of a seven goes through a pipeline of steps and a model, and becomes the label seven"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 810 174" role="img" aria-label="{label}">'
    svg = f'{head}<rect width="810" height="174" fill="#ffffff"/><g {style}>{"".join(parts)}</g></svg>\n'
    (ROOT / "docs/images/pipeline.svg").write_text(svg)


if __name__ == "__main__":
    main()
