"""docs/shared.md: what its first section says, with a packaged redis-server. Needs the variable TERRACE_PROGRAM."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = os.environ.get("TERRACE_PROGRAM", "")
PAGE = Path(__file__).parents[2] / "docs" / "shared.md"
# The package redis-tools has the same program under another name, and starts no service.
SERVER = shutil.which("redis-server") or shutil.which("redis-check-rdb")
HAS_ALL = SERVER is not None and PROGRAM != ""
pytestmark = pytest.mark.skipif(not HAS_ALL, reason="needs redis-server (package redis-tools) and TERRACE_PROGRAM")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def port(tmp_path: Path):
    chosen = free_port()
    settings = re.search(r"redis-server --port 6400 (.*) &\n", PAGE.read_text())
    assert settings, "the page starts a server"
    words = [word.strip("'") for word in settings[1].split()]
    command = ["redis-server", "--port", str(chosen), "--bind", "127.0.0.1", *words]
    with subprocess.Popen(command, executable=SERVER, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", chosen)) == 0:
                    break
            time.sleep(0.05)
        yield chosen
        server.terminate()


def replays_of_the_page(port: int, folder: Path) -> list[list[str]]:
    text = PAGE.read_text().replace("\\\n", " ").replace("127.0.0.1:6400", f"127.0.0.1:{port}")
    commands = re.findall(r"^ +terrace (replay .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    return [re.sub(r"(\w+)\.json", rf"{folder}/\1.json", command).split() for command in commands]


def test_two_instances_share_as_the_page_says(port: int, tmp_path: Path) -> None:
    for command in replays_of_the_page(port, tmp_path):
        subprocess.run([PROGRAM, *command], check=True, stdout=subprocess.DEVNULL, timeout=120)
    first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("first", "second"))
    assert second["blocks"]["shared"] > first["blocks"]["shared"]
    for report in (first, second):
        blocks = report["blocks"]
        assert report["verify"]["mismatches"] == 0
        assert report["verify"]["checked"] == sum(blocks[source] for source in ("device", "host", "storage", "shared"))


def test_a_server_that_does_not_answer_costs_no_request(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = ["replay", "--requests", "200", "--device-blocks", "300", "--host-blocks", "300", "--block-bytes", "16KiB"]
    command += ["--shared", f"redis://127.0.0.1:{free_port()}", "--report", str(report)]
    subprocess.run([PROGRAM, *command], check=True, stdout=subprocess.DEVNULL, timeout=120)
    result = json.loads(report.read_text())
    assert result["blocks"]["shared"] == 0
    assert result["rejected"] == 0


def test_other_weights_find_nothing(port: int, tmp_path: Path) -> None:
    for revision, name in (("one", "first"), ("two", "second")):
        report = tmp_path / f"{name}.json"
        command = ["replay", "--requests", "200", "--device-blocks", "300", "--host-blocks", "300", "--block-bytes", "16KiB"]
        command += ["--shared", f"redis://127.0.0.1:{port}", "--shared-weights-revision", revision, "--report", str(report)]
        command += ["--shared-write-policy", "write-through" if name == "first" else "none"]
        subprocess.run([PROGRAM, *command], check=True, stdout=subprocess.DEVNULL, timeout=120)
    assert json.loads((tmp_path / "second.json").read_text())["blocks"]["shared"] == 0


def keys_there(port: int) -> int:
    """The number of keys that the server has."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"DBSIZE\r\n")
        return int(connection.recv(64).decode().strip().lstrip(":"))


@contextlib.contextmanager
def ended_at_exit(process: subprocess.Popen):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_one_instance_reads_what_another_is_writing_while_both_live(port: int, tmp_path: Path) -> None:
    """One prefills and writes all that it computes; the other, with a device, a host and a disk of its own, reads."""
    report = tmp_path / "reader.json"
    sizes = ["--workload", "chat", "--device-blocks", "300", "--host-blocks", "300", "--block-bytes", "16KiB"]
    sizes += ["--shared", f"redis://127.0.0.1:{port}"]
    writer = [PROGRAM, "replay", "--requests", "1000000", "--shared-write-policy", "write-through", *sizes]
    reader = [PROGRAM, "replay", "--requests", "400", "--shared-write-policy", "none", "--report", str(report), *sizes]
    reader += ["--storage", f"file:{tmp_path}/disk", "--storage-capacity", "64MiB"]
    with ended_at_exit(subprocess.Popen(writer, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as living:
        while keys_there(port) < 3000:
            assert living.poll() is None
            time.sleep(0.05)
        read = subprocess.run(reader, check=False, capture_output=True, text=True, timeout=120)
        assert read.returncode == 0, read.stderr
        assert living.poll() is None, "the writer lives as long as the reader"
    result = json.loads(report.read_text())
    blocks = result["blocks"]
    assert blocks["shared"] > 1000
    assert result["verify"]["mismatches"] == 0
    assert result["verify"]["checked"] == sum(blocks[source] for source in ("device", "host", "storage", "shared"))
