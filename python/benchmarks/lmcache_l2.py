"""TerraceL2Adapter beside LMCache's own file system adapter, by LMCache's own benchmark (`lmcache bench l2`).

    python lmcache_l2.py DIRECTORY [--repeat 5] [--rounds 8] [--data-size-kb 64 2048] [--adapters buffered direct terrace]

Needs LMCache. Each run is a process, with one adapter in a folder of its own, which is removed. The runs of all adapters alternate,
and the figures are medians over the runs of the median over the rounds. LMCache compares what the last round loads with what it
stored. Adapters:

    buffered     LMCache's file system adapter, through the page cache, as it is by default
    direct       the same with direct I/O
    terrace      TerraceL2Adapter, as it is by default: direct I/O, and a checksum of each block that is read

The page cache holds what was just written, unless the control group of the benchmark has less memory than that. The example of
vllm_tier.py limits it to 2 GiB; then: python lmcache_l2.py DIRECTORY --rounds 16 --data-size-kb 2048.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

KEYS, IN_FLIGHT = 32, 4


def adapter(kind: str, directory: Path, data_bytes: int, rounds: int) -> dict[str, Any]:
    if kind in ("buffered", "direct"):
        return {"type": "fs", "base_path": str(directory), "use_odirect": kind == "direct"}
    options = {
        "path": str(directory),
        "capacity": 2 * (rounds + 1) * KEYS * IN_FLIGHT * data_bytes + (64 << 20),
        "weights_revision": "1",
    }
    return {
        "type": "plugin",
        "module_path": "terrace_kv.lmcache",
        "class_name": "TerraceL2Adapter",
        "adapter_params": options,
    }


def measure(kind: str, directory: Path, kilobytes: int, rounds: int) -> dict[str, float]:
    """MB/s of store and load in the median round, and microseconds of a look-up for each key."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    spec = adapter(kind, directory / "kv", kilobytes << 10, rounds)
    report = directory / "report.json"
    command = [sys.executable, "-m", "lmcache.cli.main", "bench", "l2", "--l2-adapter", json.dumps(spec)]
    command += ["--num-keys", str(KEYS), "--in-flight", str(IN_FLIGHT), "--data-size-kb", str(kilobytes), "--rounds", str(rounds)]
    command += ["--lookup-max-hit-rate", "1", "--l1-align-bytes", "4096", "--no-skip-verify"]
    command += ["--format", "json", "--output", str(report)]
    environment = {**os.environ, "LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{kind}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    found: dict[str, float] = {}
    for section in json.loads(report.read_text())["metrics"].values():
        if "operation" not in section:
            continue
        assert section["total_success"] == section["total_keys"], f"{kind}: {section}"
        seconds = section["duration_p50_ms"] / 1e3
        at_once = KEYS * IN_FLIGHT
        is_look_up = section["operation"] == "Lookup"
        found[section["operation"]] = seconds * 1e6 / at_once if is_look_up else at_once * kilobytes * 1024 / 1e6 / seconds
    shutil.rmtree(directory)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--data-size-kb", type=int, nargs="+", default=[64, 2048])
    arguments.add_argument("--adapters", nargs="+", default=["buffered", "direct", "terrace"])
    given = arguments.parse_args()
    for kilobytes in given.data_size_kb:
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in given.adapters}
        for number in range(given.repeat):
            for kind in given.adapters[:: -1 if number % 2 else 1]:  # none is always the one after another
                runs[kind].append(measure(kind, given.directory / f"lmcache-{kind}", kilobytes, given.rounds))
        print(f"{KEYS * IN_FLIGHT} objects of {kilobytes} KiB a round; medians of {given.repeat} runs")
        for kind, each in runs.items():
            medians = {name: statistics.median(run[name] for run in each) for name in each[0]}
            print(
                f"  {kind:9} store {medians['Store']:5.0f} MB/s  load {medians['Load']:5.0f} MB/s  "
                f"look-up {medians['Lookup']:5.1f} us a key"
            )


if __name__ == "__main__":
    main()
