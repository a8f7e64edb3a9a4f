"""A packaged Prometheus scrapes a serving replay, evaluates the alert rules and every expression of the dashboard.

Run by `tools/check --servers`. Needs the program (TERRACE_PROGRAM) and the packages prometheus and redis-tools.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
PROGRAM = os.environ.get("TERRACE_PROGRAM", "")
PATIENCE = 60

# The package redis-tools has the same program under another name, and starts no service.
REDIS = shutil.which("redis-server") or shutil.which("redis-check-rdb")

pytestmark = pytest.mark.skipif(
    not PROGRAM or shutil.which("prometheus") is None or REDIS is None,
    reason="needs TERRACE_PROGRAM, the package prometheus and redis-server (package redis-tools)",
)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def get(port: int, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())["data"]


def until(condition: Any) -> Any:
    """Waits until the condition gives something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            result = condition()
        except OSError:
            result = None
        if result:
            return result
        time.sleep(0.2)
    raise TimeoutError("the condition did not come true")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("prometheus")
    token = folder / "token"
    token.touch(0o600)
    token.write_text("a token for this test\n")
    target, port, shared = free_port(), free_port(), free_port()
    shutil.copy(MONITORING / "alerts.yml", folder)
    (folder / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: terrace
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{target}"]}}]
"""
    )
    replay = [PROGRAM, "replay", "--workload", "chat", "--requests", "1000000", "--speed", "50", "--block-bytes", "4KiB"]
    replay += ["--device-blocks", "1000", "--host-blocks", "2000"]
    replay += ["--storage", f"file:{folder}/kv", "--storage-capacity", "64MiB"]
    replay += ["--admin", f"tcp:127.0.0.1:{target}", "--admin-token-file", str(token)]
    replay += ["--shared", f"redis://127.0.0.1:{shared}", "--shared-write-policy", "write-through"]
    redis = [str(REDIS), "--port", str(shared), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    redis += ["--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl"]
    server = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    server += [f"--web.listen-address=127.0.0.1:{port}"]
    with open(folder / "log", "w") as log:
        engine = subprocess.Popen(["redis-server", *redis[1:]], executable=redis[0], stdout=log, stderr=log)
        processes = [engine, *(subprocess.Popen(words, stdout=log, stderr=log) for words in (replay, server))]
        try:
            until(lambda: get(port, "/api/v1/query", query="terrace_requests_total > 20")["result"])
            yield port
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(PATIENCE)


def test_the_target_is_scraped(prometheus: int) -> None:
    targets = get(prometheus, "/api/v1/targets")["activeTargets"]
    assert [(each["health"], each["lastError"]) for each in targets] == [("up", "")]


def test_every_alert_rule_is_evaluated(prometheus: int) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in get(prometheus, "/api/v1/rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules()))
    assert len(rules()) >= 8
    assert {rule["name"]: (rule["health"], rule.get("lastError", "")) for rule in rules()} == {
        rule["name"]: ("ok", "") for rule in rules()
    }
    assert not [rule["name"] for rule in rules() if rule["state"] == "firing"]


def test_every_panel_of_the_dashboard_has_data(prometheus: int) -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert len(dashboard["panels"]) > 15
    for panel in dashboard["panels"]:
        # A panel has targets for other kinds of processes, too.
        targets = [target["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*") for target in panel["targets"]]
        assert until(lambda: any([get(prometheus, "/api/v1/query", query=each)["result"] for each in targets])), panel["title"]


def test_tokens_by_source_sum_to_the_tokens_asked_for(prometheus: int) -> None:
    query = "sum(terrace_request_tokens_total) - sum(terrace_request_tokens_asked_total)"
    (sample,) = get(prometheus, "/api/v1/query", query=query)["result"]
    assert float(sample["value"][1]) == 0
