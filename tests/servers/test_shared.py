"""docs/shared.md: what it says, and `terrace shared check`, with a packaged redis-server. Needs the variable TERRACE_PROGRAM."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def serving(folder: Path, port: int, *words: str) -> Iterator[int]:
    """A server that listens on `port`, with these words after its command."""
    command = ["redis-server", "--bind", "127.0.0.1", *words]
    with subprocess.Popen(command, executable=SERVER, cwd=folder, stdout=subprocess.DEVNULL) as server:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
        server.terminate()


def words_of_the_page() -> list[str]:
    settings = re.search(r"redis-server --port 6400 (.*) &\n", PAGE.read_text())
    assert settings, "the page starts a server"
    return [word.strip("'") for word in settings[1].split()]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    chosen = free_port()
    with serving(tmp_path, chosen, "--port", str(chosen), *words_of_the_page()):
        yield chosen


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
    assert second["blocks"]["miss"] < first["blocks"]["miss"] / 2, "the page says so"
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


@contextlib.contextmanager
def ended_at_exit(process: subprocess.Popen):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "options", ["[shared]\nwrite-policy = \"write-through\"", "caching = false\nstore-uncached = true"], ids=["caches", "decodes"]
)
def test_one_instance_reads_what_another_is_writing_while_both_live(port: int, tmp_path: Path, options: str) -> None:
    """One writes all that it computes, and may cache nothing itself; the other, with a device, a host and a disk of its own,
    reads."""
    report = tmp_path / "reader.json"
    config = tmp_path / "writer.toml"
    config.write_text(options)
    sizes = ["--workload", "chat", "--device-blocks", "300", "--host-blocks", "300", "--block-bytes", "16KiB"]
    sizes += ["--shared", f"redis://127.0.0.1:{port}"]
    writer = [PROGRAM, "replay", "--requests", "1000000", "--config", str(config), *sizes]
    reader = [PROGRAM, "replay", "--requests", "400", "--shared-write-policy", "none", "--report", str(report), *sizes]
    reader += ["--storage", f"file:{tmp_path}/disk", "--storage-capacity", "64MiB", "--shared-probe-deadline", "10s"]
    with ended_at_exit(subprocess.Popen(writer, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as living:
        while int(ask(port, "DBSIZE").strip().lstrip(":")) < 3000:
            assert living.poll() is None
            time.sleep(0.05)
        read = subprocess.run(reader, check=False, capture_output=True, text=True, timeout=120)
        assert read.returncode == 0, read.stderr
        assert living.poll() is None, "the writer lives as long as the reader"
    result = json.loads(report.read_text())
    blocks = result["blocks"]
    # The reader writes nothing there. How many it reads depends on how far the writer is ahead of it.
    assert blocks["shared"] > 0
    assert result["verify"]["mismatches"] == 0
    assert result["verify"]["checked"] == sum(blocks[source] for source in ("device", "host", "storage", "shared"))


# ---- terrace shared check ------------------------------------------------------------------------------------------------


def ask(port: int, *words: str) -> str:
    """The first bytes of the answer of a server."""
    text = f"*{len(words)}\r\n" + "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(text.encode())
        return connection.recv(1 << 16).decode()


def check(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, "shared", "check", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


def verdicts(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {finding["fact"]: finding["verdict"] for finding in json.loads(result.stdout)["findings"]}


def sentence(result: subprocess.CompletedProcess[str], status: int) -> str:
    """The one line on standard error."""
    assert result.returncode == status, result.stderr
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_the_server_of_the_page_has_nothing_to_mend_but_its_size(port: int) -> None:
    url = f"redis://127.0.0.1:{port}"
    result = check(url, "--json", "--block-bytes", "64KiB", "--prefill-tokens-per-second", "1000")
    assert result.returncode == 0, result.stderr
    facts = verdicts(result)
    assert {name: verdict for name, verdict in facts.items() if name != "probes"} == {
        **dict.fromkeys(["server", "replicas", "policy", "disk", "memory", "write", "read", "pays"], "ok")
    }
    measured = json.loads(result.stdout)["measured"]
    assert measured["read_bytes_per_second"] > 0 and measured["write_bytes_per_second"] > 0
    assert 0 < measured["round_trip_median_seconds"] <= measured["round_trip_p99_seconds"]
    assert ask(port, "DBSIZE") == ":0\r\n", "it removes what it wrote"
    shown = check(url)
    assert "policy   ok: volatile-ttl" in shown.stdout
    assert "pays     cannot tell" in shown.stdout
    assert "memory   warning: " in shown.stdout, "2 GiB are little for blocks of 2 MiB"


def test_a_server_with_the_usual_settings_has_warnings_and_can_be_used(tmp_path: Path) -> None:
    chosen = free_port()
    with serving(tmp_path, chosen, "--port", str(chosen), "--appendonly", "yes"):
        result = check(f"redis://127.0.0.1:{chosen}", "--json")
    assert result.returncode == 0, result.stderr
    facts = verdicts(result)
    assert facts["policy"] == facts["memory"] == facts["disk"] == "warning"


def test_the_user_of_the_page_may_do_all_that_is_needed_and_the_rest_cannot_be_told(port: int, tmp_path: Path) -> None:
    rights = re.search(r"an ACL user with `([^`]*)`", PAGE.read_text())
    assert rights, "the page names the rights"
    assert ask(port, "ACL", "SETUSER", "kv", "on", ">a word", "resetchannels", "-@all", *rights[1].split()) == "+OK\r\n"
    password = tmp_path / "password"
    password.write_text("a word\n")
    url = f"redis://kv@127.0.0.1:{port}"
    result = check(url, "--json", "--shared-password-file", str(password))
    assert result.returncode == 0, result.stderr
    facts = verdicts(result)
    assert facts["policy"] == facts["memory"] == facts["disk"] == "cannot tell"
    assert facts["server"] == facts["write"] == facts["read"] == "ok"
    assert "client" not in facts and "left" not in facts
    assert ask(port, "DBSIZE") == ":0\r\n"
    # Without one of the rights.
    assert ask(port, "ACL", "SETUSER", "kv", "-unlink") == "+OK\r\n"
    facts = verdicts(check(url, "--json", TERRACE_SHARED_PASSWORD="a word"))
    assert facts["client"] == facts["left"] == "warning"
    assert ask(port, "ACL", "SETUSER", "kv", "-set") == "+OK\r\n"
    denied = check(url, "--json", TERRACE_SHARED_PASSWORD="a word")
    assert verdicts(denied)["write"] == "failed"
    assert "the shared store cannot be used like this" in sentence(denied, 1)


def test_a_check_that_is_interrupted_removes_what_it_wrote(port: int) -> None:
    # Writes do not end before the signal has come.
    assert ask(port, "CLIENT", "PAUSE", "60000", "WRITE") == "+OK\r\n"
    command = [PROGRAM, "shared", "check", f"redis://127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as checking:
        while "blocked_clients:0" in ask(port, "INFO", "clients"):
            assert checking.poll() is None
            time.sleep(0.01)
        checking.send_signal(signal.SIGINT)
        assert ask(port, "CLIENT", "UNPAUSE") == "+OK\r\n"
        shown, error = checking.communicate(timeout=30)
    assert checking.returncode == 130
    assert (shown, error.count("\n")) == ("", 1)
    assert "interrupted" in error
    assert ask(port, "DBSIZE") == ":0\r\n"
    assert int(re.search(r"cmdstat_set:calls=(\d+)", ask(port, "INFO", "commandstats"))[1]) < 64, "it begins no more blocks"


def test_a_configuration_has_the_url_and_the_sizes(port: int, tmp_path: Path) -> None:
    config = tmp_path / "terrace.toml"
    text = f'unit-prefill = "5ms"\n[[pool]]\nblock-bytes = "32KiB"\n[shared]\nurl = "redis://127.0.0.1:{port}"\n'
    config.write_text(text)
    result = check("--config", str(config), "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["measured"]["block_bytes"] == 32 << 10
    assert verdicts(result)["pays"] == "ok"


def test_what_is_wrong_is_one_sentence(port: int, tmp_path: Path) -> None:
    host = f"127.0.0.1:{port}"
    assert "nobody listens there" in sentence(check(f"redis://127.0.0.1:{free_port()}"), 1)
    assert "the name of the host is not known" in sentence(check("redis://nowhere.invalid"), 1)
    assert "it is a single server; leave ?cluster=1 out" in sentence(check(f"redis://{host}?cluster=1"), 1)
    assert "there is no \"http\"" in sentence(check(f"http://{host}"), 2)
    assert "no shared store is named" in sentence(check(), 2)
    assert "the user kv has no password" in sentence(check(f"redis://kv@{host}"), 2)
    assert "cannot be read" in sentence(check(f"redis://{host}", "--shared-password-file", str(tmp_path / "none")), 2)
    assert ask(port, "CONFIG", "SET", "requirepass", "sesame") == "+OK\r\n"
    assert "wants a password, and none is given" in sentence(check(f"redis://{host}"), 1)
    wrong = sentence(check(f"redis://{host}", TERRACE_SHARED_PASSWORD="a wrong word"), 1)
    assert "the password of the user default is wrong" in wrong
    assert "a wrong word" not in wrong
    assert check(f"redis://{host}", TERRACE_SHARED_PASSWORD="sesame").returncode == 0


def test_the_lab_measures_a_server_and_removes_what_it_wrote(port: int, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = ["shared", "--shared", f"redis://127.0.0.1:{port}", "--rounds", "1", "--block-bytes", "64KiB,1MiB"]
    subprocess.run([PROGRAM + "-lab", *command, "--report", str(report)], check=True, stdout=subprocess.DEVNULL, timeout=120)
    result = json.loads(report.read_text())
    assert [row["block_bytes"] for row in result["sizes"]] == [64 << 10, 1 << 20]
    assert all(row["read_gb_per_s"] > 0 and row["write_gb_per_s"] > 0 for row in result["sizes"])
    assert ask(port, "DBSIZE") == ":0\r\n"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls_on_one_side_only_is_named(port: int, tmp_path: Path) -> None:
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "certificate"]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    secure = free_port()
    words = ["--port", "0", "--tls-port", str(secure), "--tls-cert-file", "certificate", "--tls-key-file", "key"]
    words += ["--tls-ca-cert-file", "certificate", "--tls-auth-clients", "no", "--save", ""]
    with serving(tmp_path, secure, *words):
        assert "the URL of a server with TLS begins with rediss://" in sentence(check(f"redis://127.0.0.1:{secure}"), 1)
        assert "ca-file names the authority" in sentence(check(f"rediss://127.0.0.1:{secure}"), 1)
        trusted = ["--shared-ca-file", str(tmp_path / "certificate"), "--json"]
        assert verdicts(check(f"rediss://127.0.0.1:{secure}", *trusted))["read"] == "ok"
    assert "the URL of a server without TLS begins with redis://" in sentence(check(f"rediss://127.0.0.1:{port}"), 1)


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs redis-cli (package redis-tools)")
def test_a_cluster_is_judged_by_each_of_its_servers(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    servers: list[Any] = []
    try:
        for each in ports:
            folder = tmp_path / str(each)
            folder.mkdir()
            words = ["--port", str(each), "--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--save", ""]
            servers.append(serving(folder, each, *words, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"))
            servers[-1].__enter__()
        hosts = [f"127.0.0.1:{each}" for each in ports]
        create = ["redis-cli", "--cluster", "create", *hosts, "--cluster-replicas", "0", "--cluster-yes"]
        subprocess.run(create, check=True, capture_output=True, timeout=60)
        for _ in range(400):
            if all("cluster_state:ok" in ask(each, "CLUSTER", "INFO") for each in ports):
                break
            time.sleep(0.05)
        url = f"redis://{hosts[0]}?cluster=1"
        result = check(url, "--json", "--block-bytes", "64KiB")
        assert result.returncode == 0, result.stderr
        facts = verdicts(result)
        assert facts["cluster"] == facts["policy"] == facts["write"] == facts["read"] == "ok"
        assert facts["coverage"] == "warning", "yes is the default"
        assert json.loads(result.stdout)["servers"] == 3
        assert [ask(each, "DBSIZE") for each in ports] == [":0\r\n"] * 3
        assert "add ?cluster=1 to the URL" in sentence(check(f"redis://{hosts[0]}"), 1)
        # One server has another policy, and then one is lost.
        assert ask(ports[1], "CONFIG", "SET", "maxmemory-policy", "noeviction") == "+OK\r\n"
        shown = check(url, "--block-bytes", "64KiB").stdout
        assert f"policy   warning: noeviction at {hosts[1]}" in shown
        servers.pop().__exit__(None, None, None)
        lost = check(url, "--block-bytes", "64KiB")
        assert f"{hosts[2]}: nobody listens there" in lost.stdout
        assert "cannot be used like this" in sentence(lost, 1)
    finally:
        for server in servers:
            server.__exit__(None, None, None)
