"""Texts of Debian's packages with their sections, from the index that apt fetches.

Needs apt on a Debian machine. The index is fetched into a folder of its own, with the long descriptions, which
containers often leave out; what apt keeps for the machine is not touched.
"""

import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Labels, and Debian's sections that each stands for. Not here: sections that are no subject (doc, utils, misc,
# oldlibs, debug, metapackages, tasks, localization …) and those of a few packages.
LABELS = {
    "admin": ["admin", "kernel", "shells"],
    "database": ["database"],
    "desktop": ["gnome", "gnustep", "kde", "x11", "xfce"],
    "devel": ["cli-mono", "devel", "interpreters", "vcs"],
    "fonts": ["fonts"],
    "functional": ["haskell", "lisp", "ocaml"],
    "games": ["games"],
    "golang": ["golang"],
    "graphics": ["graphics"],
    "java": ["java"],
    "javascript": ["javascript"],
    "libs": ["introspection", "libdevel", "libs"],
    "mail": ["mail", "news"],
    "net": ["comm", "hamradio", "net"],
    "perl": ["perl"],
    "php": ["php"],
    "python": ["python", "zope"],
    "r": ["gnu-r"],
    "ruby": ["ruby"],
    "rust": ["rust"],
    "science": ["electronics", "math", "science"],
    "sound": ["sound"],
    "text": ["editors", "tex", "text"],
    "video": ["video"],
    "web": ["httpd", "web"],
}
LABEL_OF = {section: label for label, sections in LABELS.items() for section in sections}
# Packages about other packages: their descriptions say little of their own.
LEFT_OUT = {"debug", "localization", "metapackages", "oldlibs", "tasks"}
LONGEST = 320  # characters of a long description
SIBLINGS = 2  # packages of one source in one section


@dataclass
class Package:
    name: str
    source: str  # without version numbers: gcc-12 and gcc-13 are one source
    section: str
    short: str
    long: str

    @property
    def label(self):
        return LABEL_OF.get(self.section)

    @property
    def text(self):
        return f"{self.short}. {self.long}"

    @property
    def is_held_out(self):
        """A tenth of the sources, the same ones with every index."""
        return hashlib.sha256(self.source.encode()).digest()[0] < 26


def packages(folder: Path):
    """The packages with distinct descriptions, sorted by name, and the name and date of the index."""
    fetch(folder)
    release, index, descriptions = files(folder)
    texts = {record["Description-md5"]: record["Description-en"] for record in records(folder, descriptions)}
    seen, siblings, found = set(), {}, []
    for record in sorted(records(folder, index), key=lambda record: record["Package"]):
        short, _, long = texts.get(record["Description-md5"], "").partition("\n")
        short, long = " ".join(short.split()), shorten(long)
        section = record["Section"].split("/")[-1]
        source = re.sub("[0-9.]+", "", record.get("Source", record["Package"]).split()[0])
        key = (source, section)
        if section in LEFT_OUT or not short or not long or (short, long) in seen or siblings.get(key) == SIBLINGS:
            continue
        seen.add((short, long))
        siblings[key] = siblings.get(key, 0) + 1
        found.append(Package(record["Package"], source, section, short, long))
    return found, release


def split(found):
    """Training and held-out packages: no source is in both, nor a description."""
    train = [package for package in found if not package.is_held_out]
    known = {text for package in train for text in (package.short.lower(), package.long)}
    held_out = [package for package in found if package.is_held_out]
    return train, [package for package in held_out if not {package.short.lower(), package.long} & known]


def shorten(long):
    """One line, without the marks of paragraphs."""
    words = " ".join(word for word in long.split() if word not in {".", "*", "-"})
    return words if len(words) <= LONGEST else words[:LONGEST].rpartition(" ")[0]


def apt(folder, program, *arguments):
    options = [f"Dir::State::Lists={folder}", "Acquire::Languages=en", "APT::Sandbox::User=root"]
    command = [program, *(word for option in options for word in ("-o", option)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def fetch(folder):
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*Translation-en*")):
        apt(folder, "apt-get", "update")


def files(folder):
    """Name and date of Debian's release, and the files of its packages and of their descriptions."""
    found = {}
    for kind in ["Packages", "Translations"]:
        wanted = ["Origin: Debian", "Component: main", f"Created-By: {kind}"]
        listed = apt(folder, "apt-get", "indextargets", "--format", "$(CODENAME) $(FILENAME)", *wanted)
        targets = (line.split(" ", 1) for line in listed.splitlines())
        found[kind] = [(codename, path) for codename, path in targets if "-" not in codename and Path(path).exists()]
        if not found[kind]:
            raise SystemExit(f"apt has no index of Debian's main packages with {kind}: see /etc/apt/sources.list.d")
    codename, index = found["Packages"][0]
    (head,) = folder.glob(f"*_dists_{codename}_InRelease")
    facts = dict(re.findall("^(Version|Date): (.*)$", head.read_text(), re.MULTILINE))
    return f"Debian {facts.get('Version', '')} ({codename}), index of {facts['Date']}", index, found["Translations"][0][1]


def records(folder, path):
    for block in apt(folder, "/usr/lib/apt/apt-helper", "cat-file", path).split("\n\n"):
        fields = re.findall(r"^([\w-]+): ?(.*(?:\n[ \t].*)*)$", block, re.MULTILINE)
        if fields:
            yield dict(fields)
