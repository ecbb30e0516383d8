"""The package as such."""

import subprocess
import sys

import pytest
from conftest import ROOT

import gpux
import gpux.step


def test_the_program():
    for command in [[gpux.find_gpux_bin()], [sys.executable, "-m", "gpux"]]:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"gpux {gpux.__version__}\n"
    photo = ROOT / "models/samples/seven.png"
    done = subprocess.run([gpux.find_gpux_bin(), "run", ROOT, "--file", photo], capture_output=True, text=True)
    assert "seven" in done.stdout


def test_import_is_light():
    script = "import sys, gpux; print([name for name in ('numpy', 'asyncio', 'concurrent') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_steps(tmp_path):
    subprocess.run([gpux.find_gpux_bin(), "new", "step", "--lang", "c", tmp_path / "mine"], check=True)
    try:
        gpux.step.build(tmp_path / "mine")
    except gpux.GPUXError as error:
        if "install" in str(error):
            pytest.skip("there is no compiler for C")
        raise
    report = gpux.step.test(tmp_path / "mine")
    assert report["failed"] == 0
    assert report["passed"] > 0
    with pytest.raises(gpux.GPUXError, match=r"looked for.*gpux\.yml"):
        gpux.step.test(tmp_path)
