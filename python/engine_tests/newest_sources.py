"""Unpacks the Python sources of the newest vLLM for GPUs, which is often newer than the newest build for a CPU.

    python newest_sources.py OUT      then OUT before others in PYTHONPATH

The classes of the interface can be imported without what is compiled. OUT keeps them until there is a newer version. Prints the
version; ends with 1 if pip cannot fetch it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: newest_sources.py OUT")
    out = Path(sys.argv[1])
    found = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "vllm"], capture_output=True, text=True)
    version = found.stdout.split("(", 1)[-1].split(")", 1)[0]
    if found.returncode != 0 or not version:
        sys.exit("newest_sources: pip knows no vllm")
    kept = out / "version"
    if not kept.is_file() or kept.read_text() != version:
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"vllm=={version}"]
            if subprocess.run(command).returncode != 0:
                sys.exit(1)  # pip has said why
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as files:
                files.extractall(out, [name for name in files.namelist() if name.startswith("vllm/") and name.endswith(".py")])
        kept.write_text(version)
    print(version)


if __name__ == "__main__":
    main()
