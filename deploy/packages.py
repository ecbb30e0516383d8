#!/usr/bin/env python3
"""Makes what package managers need from the archives in target/archives: SHA256SUMS, a Homebrew formula, npm packages.

    deploy/packages.py [--release URL]

The npm package `gpux` starts the program of the package for its platform (`@gpux/linux-x64` …), which npm chooses
among its optional dependencies; nothing is fetched while it is installed.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

ARCHIVES = Path(__file__).resolve().parent.parent / "target/archives"
# Rust's name of a platform: npm's names of system and processor, Homebrew's blocks.
PLATFORMS = {
    "x86_64-unknown-linux-gnu": ("linux", "x64", ("on_linux", "on_intel")),
    "aarch64-unknown-linux-gnu": ("linux", "arm64", ("on_linux", "on_arm")),
    "aarch64-apple-darwin": ("darwin", "arm64", ("on_macos", "on_arm")),
    "x86_64-pc-windows-gnu": ("win32", "x64", None),
}
DESCRIPTION = "Runs and serves ONNX models together with the code around them"
HOME = "https://github.com/gpux/gpux"

LAUNCHER = """#!/usr/bin/env node
// Starts the program of this platform's package.
const { spawnSync } = require("node:child_process");

const name = `@gpux/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/gpux${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`gpux: there is no package ${name}; see HOME`);
  process.exit(1);
}
const done = spawnSync(program, process.argv.slice(2), { stdio: "inherit" });
if (done.error) throw done.error;
if (done.signal) process.kill(process.pid, done.signal);
process.exit(done.status ?? 1);
""".replace("HOME", HOME)


def archives():
    """(Rust's name of the platform, version, path) of each archive."""
    for path in sorted(ARCHIVES.glob("gpux-*")):
        found = re.fullmatch(r"gpux-(\d[^-]*)-(.+?)\.(?:tar\.gz|zip)", path.name)
        if found and found[2] in PLATFORMS:
            yield found[2], found[1], path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def formula(found, release):
    """Homebrew's formula: the archive of the platform."""
    lines = [
        "class Gpux < Formula",
        f'  desc "{DESCRIPTION}"',
        f'  homepage "{HOME}"',
        f'  version "{found[0][1]}"',
        '  license "Apache-2.0"',
    ]
    for platform, _, path in found:
        blocks = PLATFORMS[platform][2]
        if blocks is None:
            continue
        system, processor = blocks
        lines += [
            f"  {system} do",
            f"    {processor} do",
            f'      url "{release}/{path.name}"',
            f'      sha256 "{digest(path)}"',
            "    end",
            "  end",
        ]
    lines += [
        "  def install",
        '    bin.install "gpux"',
        '    man1.install Dir["man/*.1"]',
        '    bash_completion.install "completions/gpux.bash" => "gpux"',
        '    zsh_completion.install "completions/gpux.zsh" => "_gpux"',
        '    fish_completion.install "completions/gpux.fish"',
        "  end",
        "  test do",
        '    assert_match version.to_s, shell_output("#{bin}/gpux --version")',
        "  end",
        "end",
    ]
    return "\n".join(lines) + "\n"


def program(path):
    """The program's name and bytes in an archive."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return "gpux.exe", archive.read(next(name for name in archive.namelist() if name.endswith("/gpux.exe")))
    with tarfile.open(path) as archive:
        member = next(member for member in archive.getmembers() if member.name.endswith("/gpux"))
        return "gpux", archive.extractfile(member).read()


def npm_package(folder, fields, files):
    folder.mkdir(parents=True)
    common = {"license": "Apache-2.0", "description": DESCRIPTION, "homepage": HOME}
    (folder / "package.json").write_text(json.dumps(fields | common, indent=2) + "\n")
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    subprocess.run(["npm", "pack", "--silent", "--pack-destination", ARCHIVES, folder], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", help="where the archives will lie")
    arguments = parser.parse_args()
    found = list(archives())
    if not found:
        raise SystemExit(f"there are no archives in {ARCHIVES}: deploy/dist.sh makes them")
    version = found[0][1]
    release = arguments.release or f"{HOME}/releases/download/v{version}"
    sums = [f"{digest(path)}  {path.name}" for _, _, path in found]
    sums += [f"{digest(path)}  {path.name}" for path in sorted(ARCHIVES.glob("*.deb"))]
    (ARCHIVES / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    (ARCHIVES / "gpux.rb").write_text(formula(found, release))

    folder = ARCHIVES / "npm"
    shutil.rmtree(folder, ignore_errors=True)
    packages = {}
    for platform, _, path in found:
        system, processor, _ = PLATFORMS[platform]
        name = f"@gpux/{system}-{processor}"
        packages[name] = version
        file, content = program(path)
        fields = {"name": name, "version": version, "os": [system], "cpu": [processor], "files": [file]}
        npm_package(folder / f"{system}-{processor}", fields, {file: content})
    fields = {"name": "gpux", "version": version, "bin": {"gpux": "gpux.js"}, "optionalDependencies": packages}
    npm_package(folder / "gpux", fields, {"gpux.js": LAUNCHER.encode()})


if __name__ == "__main__":
    main()
