"""``python -m gpux``: the program ``gpux``."""

import os
import subprocess
import sys

from gpux._program import find_gpux_bin


def main() -> None:
    """Becomes the program, with the same arguments."""
    program = find_gpux_bin()
    if sys.platform == "win32":
        sys.exit(subprocess.run([program, *sys.argv[1:]]).returncode)
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
