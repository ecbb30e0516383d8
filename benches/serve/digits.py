"""The digits of the top-level gpux.yml, with its component, beside the same work in Python (digits_twin.py).

    python benches/serve/digits.py [SECONDS [REPEATS]]

First all must give the same answers for every photo of models/samples. Needs FastAPI, uvicorn, LitServe, SciPy,
Pillow, psutil, ONNX Runtime and oha: the `base` of the peers ($PEERS_HOME, see race.py) and SciPy.
"""

import base64
import json
import pathlib
import sys
import urllib.request

import load
import race

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = race.ROOT / "models" / "samples"
PHOTO = "seven.png"
# Exponentials differ in their last bits.
TOLERANCE = 1e-4
TYPES = {".png": "image/png", ".jpg": "image/jpeg"}


def contestants():
    python = race.HOME / "base" / "bin" / "python"
    uvicorn = f"{python} -m uvicorn --app-dir {HERE} --no-access-log --log-level warning --port {{port}}"
    return [
        load.Contestant("FastAPI", f"{uvicorn} digits_fastapi:app", "/predict", as_is),
        load.Contestant("FastAPI, 2 processes", f"{uvicorn} --workers 2 digits_fastapi:app", "/predict", as_is),
        load.Contestant("LitServe", f"{python} {HERE}/digits_litserve.py {{port}}", "/predict", as_base64),
        load.gpux("gpux", race.ROOT, requests=as_is),
    ]


def as_is(photo):
    return load.Requests(photo, TYPES[photo.suffix])


def as_base64(photo):
    """The photo in JSON, as LitServe takes it."""
    file = race.RACE / f"{photo.name}.json"
    file.write_text(json.dumps({"image": base64.b64encode(photo.read_bytes()).decode()}))
    return load.Requests(file, "application/json")


def answer(server, contestant, photo):
    requests = contestant.requests(photo)
    headers = {"Content-Type": requests.content_type}
    message = urllib.request.Request(server.url + contestant.path, requests.body.read_bytes(), headers)
    given = json.load(urllib.request.urlopen(message))
    return given if isinstance(given, list) else next(iter(given.values()))


def check(everybody):
    """Fails unless all name the same digit for each photo, as likely."""
    photos = sorted(photo for photo in SAMPLES.iterdir() if photo.suffix in TYPES)
    answers = {}
    for contestant in everybody:
        with load.Server(contestant) as server:
            answers[contestant.name] = [answer(server, contestant, photo) for photo in photos]
    furthest = 0.0
    for name, given in answers.items():
        for photo, one, other in zip(photos, given, answers[everybody[0].name], strict=True):
            if one[0]["label"] != other[0]["label"]:
                sys.exit(f"{name} says {one[0]['label']} of {photo.name}, {everybody[0].name} {other[0]['label']}")
            furthest = max(furthest, abs(one[0]["score"] - other[0]["score"]))
    if furthest > TOLERANCE:
        sys.exit(f"scores differ by {furthest:.4f}")
    print(f"{len(photos)} photos: the same digits from all, scores within {furthest:.1e}\n")


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    race.build("build", "--release", "--bin", "gpux")
    everybody = contestants()
    race.RACE.mkdir(parents=True, exist_ok=True)
    check(everybody)
    load.rounds(everybody, SAMPLES / PHOTO, (1, 16), seconds, repeats)


if __name__ == "__main__":
    main()
