"""Runs the program `terrace` that the package contains: `terrace ...` or `python -m terrace_kv ...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    program = Path(__file__).parent / "bin" / "terrace"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"terrace_kv: {error}")


if __name__ == "__main__":
    main()
