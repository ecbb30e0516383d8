"""Texts of mixed lengths: `gpux serve`, with and without batches, with sessions as it makes them by load, and in int8,
beside the floor, which runs each text by itself.

    python benches/serve/texts.py [SECONDS [REPEATS]]

The same texts every time, in two lists: lengths even from 8 to 128 tokens, and lengths as sentences have them (a
log-normal, median about 25). Needs the models of the peers ($PEERS_HOME, see race.py), psutil and oha.
"""

import json
import random
import sys

import load
import race

COUNT, SHORTEST, LONGEST = 512, 8, 128
BATCHES = ", batching: { max_size: 8 }"
# Each is one token of the peers' tokenizer; two more stand around a text.
WORDS = """the of and to in is was for that on with as by it at from his an be this are or which had not have one new
first more after who they has their model server request batch image text time runs fast slow data path point metre""".split()
DRAWS = {
    "even": lambda draw: draw.randint(SHORTEST, LONGEST),
    "sentences": lambda draw: min(max(round(draw.lognormvariate(3.2, 0.6)), SHORTEST), LONGEST),
}


def write_texts(name):
    """The file of the list, a request a line; and how many tokens its texts have."""
    draw = random.Random(7)
    lengths = [DRAWS[name](draw) for _ in range(COUNT)]
    texts = [" ".join(draw.choices(WORDS, k=length - 2)) for length in lengths]
    file = race.RACE / f"texts-{name}.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file, lengths


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    race.build_both()
    model, _, rest = race.PIPELINES["e3"]
    contestants = [load.floor("/e3")]
    for name, folder, more in [
        ("gpux, one by one", "e3-alone", race.SESSIONS),
        ("gpux, batches", "e3-batches", race.SESSIONS + BATCHES),
        ("gpux, batches, sessions by load", "e3-by-load", BATCHES),
    ]:
        race.write(folder, model, more, rest)
        contestants.append(load.gpux(name, race.RACE / folder))
    lists = {name: write_texts(name) for name in DRAWS}
    sample = race.RACE / "sentence.txt"
    sample.write_text(json.loads(lists["sentences"][0].read_text().splitlines()[0])["text"])
    race.build_int8("e3-mixed", "e3", sample)
    contestants.append(load.gpux("gpux, batches, int8", race.INT8 / "e3-mixed"))
    for name, (file, lengths) in lists.items():
        print(f"\n{name}: {min(lengths)} to {max(lengths)} tokens, {sum(lengths) / COUNT:.1f} in the mean\n")
        load.rounds(contestants, file, (1, 16), seconds, repeats)


if __name__ == "__main__":
    main()
