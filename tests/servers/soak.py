#!/usr/bin/env python3
"""soak.py [--minutes N] [--seed N] [--phase SECONDS]: three processes that cache, live commands, and a machine that fails.

A Store, an OffloadCache and a `terrace replay` serve beside each other over one shared store. The first two work for a phase, and
make no call in the next one (the replay has pauses of its own). Meanwhile commands of every kind reach all three, also while they
are idle, and faults happen: the shared server stands still, ends and starts again; stored bytes are flipped; the disk of the
Store is full; a process is killed and started again on its directory.

The content of a block follows from its name, and each block that is read is compared. In the end every process stops in time with
status 0, and no socket stays behind. Memory, threads and descriptors of the second half are compared with those before.

The last line of the output says "clean", and the status is 0; otherwise each failure has a line. Needs TERRACE_LIBRARY,
TERRACE_PROGRAM, PYTHONPATH=python, and redis-server. As root, the directory of the Store is a file system of its own that is
filled; otherwise that fault is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BLOCK = 65536
NAMES = 3000
PROGRAM = os.environ.get("TERRACE_PROGRAM", "")
SERVER = shutil.which("redis-server") or shutil.which("redis-check-rdb")


def content(name: int) -> bytes:
    return hashlib.sha256(b"%d" % name).digest() * (BLOCK // 32)


def some_name(draw: random.Random) -> int:
    """Half of the draws are among the first twentieth of the names."""
    return draw.randrange(NAMES if draw.random() < 0.5 else NAMES // 20)


class Worker:
    """What both workers have in common: phases, comparisons, and counts that they print as lines of JSON."""

    def __init__(self, seed: int, phase: float) -> None:
        self.draw, self.phase = random.Random(seed), phase
        self.counts: Counter[str] = Counter()
        self.stopped = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))

    def compare(self, name: int, found: Any) -> None:
        self.counts["compared"] += 1
        if found != content(name):
            self.counts["wrong"] += 1

    def guarded(self, call: Callable[[], None]) -> None:
        """An error of the library is counted by its name, and the worker goes on."""
        from terrace_kv import TerraceError

        try:
            call()
        except TerraceError as error:
            self.counts[type(error).__name__] += 1

    def step(self) -> None:
        raise NotImplementedError

    def statistics(self) -> dict[str, int]:
        raise NotImplementedError

    def run(self) -> None:
        while not self.stopped:
            end = time.monotonic() + self.phase
            while time.monotonic() < end and not self.stopped:
                self.guarded(self.step)
                time.sleep(0.002)
            print(json.dumps({"idle": False, **self.counts}), flush=True)
            end = time.monotonic() + self.phase
            while time.monotonic() < end and not self.stopped:
                time.sleep(0.1)
            print(json.dumps({"idle": True, **self.counts}), flush=True)


class StoreWorker(Worker):
    def __init__(self, seed: int, phase: float, folder: Path, shared: str) -> None:
        from terrace_kv import Store

        super().__init__(seed, phase)
        self.store = Store(
            folder / "store" / "data",
            "96MiB",
            BLOCK,
            admin={"listen": f"unix:{folder}/store.sock"},
            shared={"url": shared, "weights-revision": "one"},
            floor="1MiB",
            label="soak, store",
            log=lambda level, text: print(f"store: {level} {text}", file=sys.stderr, flush=True),
        )

    def step(self) -> None:
        name = some_name(self.draw)
        if self.draw.random() < 0.6:
            into = bytearray(BLOCK)
            self.counts["reads"] += 1
            if self.store.get(b"%d" % name, into):
                self.compare(name, into)
        else:
            self.store.put(b"%d" % name, content(name))
            self.counts["writes"] += 1

    def statistics(self) -> dict[str, int]:
        return self.store.statistics()

    def close(self) -> None:
        self.store.close(60)


class OffloadWorker(Worker):
    def __init__(self, seed: int, phase: float, folder: Path, shared: str) -> None:
        from terrace_kv import OffloadCache

        super().__init__(seed, phase)
        self.cache = OffloadCache(
            {
                "key-order": "flat",
                "write-policy": "write-through",
                "storage": {
                    "where": f"file:{folder}/offload",
                    "capacity": "96MiB",
                    "label": "soak, offload",
                },
                "shared": {"url": shared, "weights-revision": "one"},
                "admin": {"listen": f"unix:{folder}/offload.sock"},
                "pool": [{"block-bytes": BLOCK, "device-blocks": 1, "host-blocks": 256}],
            },
            log=lambda level, text: print(f"offload: {level} {text}", file=sys.stderr, flush=True),
        )
        self.job = 0

    def step(self) -> None:
        from terrace_kv import JobEventKind

        self.job += 1
        names = list({some_name(self.draw) for _ in range(8)})
        keys = [b"%d" % name for name in names]
        loads = self.draw.random() < 0.6
        buffers = [bytearray(BLOCK if loads else content(name)) for name in names]
        if loads:
            self.cache.load(self.job, keys, memory=buffers, shared=True, timeout=5)
            self.counts["reads"] += len(names)
        else:
            self.cache.store(self.job, keys, memory=buffers, timeout=5)
            self.counts["writes"] += len(names)
        while True:
            for event in self.cache.poll():
                if event.kind is JobEventKind.BLOCK and event.status == 0 and loads:
                    self.compare(names[event.block], buffers[event.block])
                if event.kind is JobEventKind.ENDED:
                    return
            self.cache.wait(10)

    def statistics(self) -> dict[str, int]:
        return self.cache.statistics()

    def close(self) -> None:
        self.cache.close(60)


def work(kind: str, seed: int, phase: float, folder: Path, shared: str) -> None:
    worker = (StoreWorker if kind == "store" else OffloadWorker)(seed, phase, folder, shared)
    print(json.dumps({"idle": False, "started": 1}), flush=True)
    worker.run()
    statistics = worker.statistics()
    worker.close()
    print(json.dumps({"statistics": statistics}), flush=True)


# ---- the machine, its operator and its faults


class Process:
    """One of the three, with what it printed. It is started again if it has ended."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.command, self.folder = name, command, folder
        self.socket = folder / f"{name}.sock"
        self.starts = 0
        self.usage: list[tuple[int, int, int]] = []  # KiB of memory, threads, descriptors since the last start
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.output = self.folder / f"{self.name}.{self.starts}.out"
        with self.output.open("w") as out, (self.folder / f"{self.name}.log").open("a") as log:
            self.running = subprocess.Popen(self.command, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
        self.usage.clear()

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def note_usage(self) -> None:
        with contextlib.suppress(OSError):
            root = Path(f"/proc/{self.running.pid}")
            status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
            self.usage.append((int(status["VmRSS"].split()[0]), int(status["Threads"]), len(list((root / "fd").iterdir()))))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]


class Soak:
    def __init__(self, folder: Path, seed: int, phase: float) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.faults: list[str] = []
        self.commands: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.compared = self.reads = 0
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.shared = f"redis://127.0.0.1:{self.port}"
        self.server = self.start_server()
        (folder / "store").mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(folder / "store")]
        self.mounted = os.geteuid() == 0 and subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0
        own = [sys.executable, __file__, "--folder", str(folder), "--shared", self.shared,
               "--seed", str(seed), "--phase", str(phase), "--work"]  # fmt: skip
        replay = f"replay --requests 100000000 --speed 30 --mode loop --verify all --block-bytes 16KiB --device-blocks 400 \
            --host-blocks 800 --storage file:{folder}/replay --storage-capacity 64MiB --admin unix:{folder}/replay.sock \
            --shared {self.shared} --shared-weights-revision one --abort-rate 0.05 --report {folder}/replay.json"
        self.processes = [
            Process("store", [*own, "store"], folder),
            Process("offload", [*own, "offload"], folder),
            Process("replay", [PROGRAM, *replay.split()], folder),
        ]

    def start_server(self) -> subprocess.Popen[bytes]:
        words = f"redis-server --bind 127.0.0.1 --port {self.port} --maxmemory 64mb --maxmemory-policy allkeys-lru --save"
        return subprocess.Popen([*words.split(), ""], executable=SERVER, cwd=self.folder, stdout=subprocess.DEVNULL)

    def fault(self, text: str) -> None:
        print("FAULT", text, flush=True)
        self.faults.append(text)

    # ---- commands

    def command(self, process: Process) -> None:
        both = ["top --once --json", "why"]
        cache = ["set host-blocks 200", "set host-blocks 256", "set write-policy write-back", "set write-policy write-through",
                 "set storage-capacity 48MiB", "set storage-capacity 64MiB", "clear --keep-storage --keep-shared", "job list",
                 "job start --json", "job start --watch --deadline 20s", "record --time 1s --out X", "trace --time 1s --out X",
                 "pause", "resume"]  # fmt: skip
        if self.draw.random() < 0.05:
            chosen = self.draw.choice(["clear", "update one"])
        else:
            chosen = self.draw.choice(both if process.name == "store" else both + cache)
        self.run_command(process, chosen)
        if chosen == "clear":
            self.run_command(process, "update one")
        if chosen == "pause":
            time.sleep(1)
            self.run_command(process, "resume")

    def run_command(self, process: Process, text: str) -> None:
        out = self.folder / f"result-{time.monotonic_ns()}"
        words = [str(out) if word == "X" else word for word in text.split()]
        split = 2 if words[0] == "job" else 1
        try:
            done = subprocess.run(
                [PROGRAM, *words[:split], "--socket", str(process.socket), *words[split:]],
                capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self.fault(f"{process.name}: `{text}` did not end within 180 s")
            return
        finally:
            out.unlink(missing_ok=True)
        self.commands[f"{process.name} {text.split()[0]} {done.returncode}"] += 1
        if done.returncode not in (0, 1, 3) or (done.returncode == 3 and not done.stderr.strip()):
            self.fault(f"{process.name}: `{text}` ended with {done.returncode}: {done.stderr.strip()[:300]}")
        elif done.returncode:
            print(f"  {process.name}: {text}: {done.returncode} {(done.stderr or done.stdout).strip()[:200]}", flush=True)

    # ---- faults

    def server_stands_still(self) -> None:
        self.server.send_signal(signal.SIGSTOP)
        time.sleep(8)
        self.server.send_signal(signal.SIGCONT)

    def server_starts_again(self) -> None:
        self.server.kill()
        self.server.wait()
        time.sleep(5)
        self.server = self.start_server()

    def bytes_are_flipped(self) -> None:
        files = [path for path in self.folder.glob("*/**/*") if path.is_file() and path.stat().st_size >= 1 << 20]
        for path in self.draw.sample(files, min(2, len(files))):
            with contextlib.suppress(OSError), path.open("r+b") as file:
                for _ in range(20):
                    at = self.draw.randrange(path.stat().st_size)
                    file.seek(at)
                    old = file.read(1)
                    file.seek(at)
                    file.write(bytes([old[0] ^ 1]) if old else b"")

    def disk_is_full(self) -> None:
        if not self.mounted:
            return
        filler = self.folder / "store" / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(10)
        filler.unlink()

    def process_is_killed(self) -> None:
        process = self.draw.choice(self.processes)
        self.note_results(process)
        process.running.kill()
        process.running.wait()
        process.start()
        self.wait_for(process)

    # ---- the whole

    def wait_for(self, process: Process) -> None:
        for _ in range(1200):
            if process.answers():
                return
            if process.running.poll() is not None:
                break
            time.sleep(0.1)
        self.fault(f"{process.name} did not come up")

    def note_results(self, process: Process) -> None:
        """Adds what the worker said last. A process that is killed has said everything but its last phase."""
        counts = next((line for line in reversed(process.lines()) if "idle" in line), {})
        self.compared += counts.get("compared", 0)
        self.reads += counts.get("reads", 0)
        if counts.get("wrong"):
            self.fault(f"{process.name}: {counts['wrong']} blocks with wrong content")
        print(f"  {process.name}: {counts}", flush=True)

    def each_fault(self) -> Iterator[Callable[[], None]]:
        while True:
            order = [self.server_stands_still, self.bytes_are_flipped, self.disk_is_full, self.server_starts_again]
            self.draw.shuffle(order)
            yield from order
            yield self.process_is_killed

    def run(self, minutes: float) -> None:
        for process in self.processes:
            self.wait_for(process)
        end = time.monotonic() + 60 * minutes
        interval, quiet = min(45, 8 * minutes), min(60, 15 * minutes)
        next_fault, faults = time.monotonic() + interval, self.each_fault()
        while time.monotonic() < end:
            for process in self.processes:
                self.command(process)
                process.note_usage()
                if (status := process.running.poll()) is not None:
                    self.fault(f"{process.name} ended with {status}")
                    process.start()
                    self.wait_for(process)
            # There is no fault shortly before the end, so that all orders can end well.
            if time.monotonic() > next_fault and end - time.monotonic() > quiet:
                next_fault = time.monotonic() + interval
                happening = next(faults)
                self.happened[happening.__name__] += 1
                happening()
            time.sleep(1)
        self.finish()

    def finish(self) -> None:
        for process in self.processes:
            if process.name != "store":
                self.run_command(process, "resume")
            process.running.send_signal(signal.SIGINT if process.name == "replay" else signal.SIGTERM)
        for process in self.processes:
            try:
                status = process.running.wait(180)
            except subprocess.TimeoutExpired:
                process.running.kill()
                status = "no end within 180 s"
            if status not in ((0, 130) if process.name == "replay" else (0,)):
                self.fault(f"{process.name} stopped with {status}")
            if process.name != "replay":
                self.note_results(process)
            if process.socket.exists():
                self.fault(f"{process.name} left its socket behind")
            self.compare_usage(process)
            broken = [line for line in (self.folder / f"{process.name}.log").read_text().splitlines()
                      if "broken invariant" in line or "Traceback" in line]  # fmt: skip
            for line in broken:
                self.fault(f"{process.name}: {line}")
        report = json.loads((self.folder / "replay.json").read_text())
        self.compared += report["verify"]["checked"]
        if report["verify"]["mismatches"]:
            self.fault(f"replay: {report['verify']['mismatches']} blocks with wrong content")
        self.server.kill()
        self.server.wait()

    def compare_usage(self, process: Process) -> None:
        """Memory for reuse may grow for a while; a leak grows for ever. A replay keeps the key of each block that it ever saw."""
        usage = process.usage
        if len(usage) < 40:
            return
        first, second = usage[len(usage) // 4 : len(usage) // 2], usage[len(usage) // 2 :]
        for index, (what, slack) in enumerate((("KiB of memory", 40_000), ("threads", 2), ("descriptors", 8))):
            before, after = (sorted(each[index] for each in part)[len(part) // 2] for part in (first, second))
            most = max(each[index] for each in usage)
            print(f"  {process.name}: {what}: median {before}, later {after}, at most {most}", flush=True)
            if after > before + slack and not (process.name == "replay" and index == 0):
                self.fault(f"{process.name}: {before} {what} in the second quarter, {after} in the second half")

    def close(self) -> None:
        for process in self.processes:
            process.running.kill()
        self.server.kill()
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder / "store")])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phase", type=float, default=30, help="seconds of work, and then of rest (default 30)")
    parser.add_argument("--keep", action="store_true", help="keep the directory with the logs")
    parser.add_argument("--work", choices=("store", "offload"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shared", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.seed, given.phase, given.folder, given.shared)
        return 0
    if not PROGRAM or SERVER is None:
        parser.error("needs TERRACE_PROGRAM and redis-server (package redis-tools)")
    folder = Path(tempfile.mkdtemp(prefix="terrace-soak-"))
    soak = Soak(folder, given.seed, given.phase)
    try:
        soak.run(given.minutes)
    finally:
        soak.close()
        if not given.keep and not soak.faults:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print("logs:", folder)
    print(f"{soak.compared} blocks compared, {soak.reads} read by workers; commands: {dict(sorted(soak.commands.items()))}; "
          f"faults: {dict(soak.happened)}; {len(soak.faults)} failures")  # fmt: skip
    print("clean" if not soak.faults else "\n".join(soak.faults))
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
