"""Runs the program `terrace` that the package contains: `terrace ...` or `python -m terrace_kv ...`. `python -m terrace_kv check JSON`
tells what is wrong with the options of Terrace in vLLM's configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    if len(sys.argv) == 3 and sys.argv[1] == "check":
        from ._vllm_options import problems

        found = list(problems(sys.argv[2]))
        sys.exit("\n".join(found) if found else print("the options of Terrace are right"))
    program = Path(__file__).parent / "bin" / "terrace"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"terrace_kv: {error}")


if __name__ == "__main__":
    main()
