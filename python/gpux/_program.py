"""Where the program ``gpux`` lies that was installed with this package."""

from __future__ import annotations

import os
import sys
import sysconfig


def find_gpux_bin() -> str:
    """The path of the program ``gpux`` that belongs to this package.

    Raises:
        FileNotFoundError: it is in none of the folders where installers put programs.
    """
    name = "gpux" + (sysconfig.get_config_var("EXE") or "")
    package = os.path.dirname(os.path.abspath(__file__))
    user_scheme = sysconfig.get_preferred_scheme("user")
    folders = [
        sysconfig.get_path("scripts"),
        # Installed by `--prefix` or into a folder on PYTHONPATH: beside lib/pythonX.Y/site-packages/gpux.
        os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(package)))), "bin"),
        sysconfig.get_path("scripts", scheme=user_scheme),
        # `pip install --target`.
        os.path.join(os.path.dirname(package), "bin"),
    ]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"the program `{name}` is in none of {', '.join(folders)}; python is {sys.executable}")
