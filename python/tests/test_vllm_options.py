"""`python -m terrace_kv check` tells what is wrong with vLLM's options, without vLLM."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from terrace_kv._vllm_options import STORAGE, problems

CONFIGURATION = Path(__file__).parents[2] / "docs" / "configuration.md"
STORE = {"path": "/mnt/nvme/kv", "capacity": "500GiB"}


def transfer(**extra: Any) -> dict[str, Any]:
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def spec(**terrace: Any) -> dict[str, Any]:
    return transfer(spec_name="TerraceOffloadingSpec", spec_module_path="terrace_kv.vllm", cpu_bytes_to_use=1 << 30, terrace=terrace)


def tier(**options: Any) -> dict[str, Any]:
    tiers = [{"type": "fs"}, {"type": "terrace", **options}]
    return transfer(spec_name="TieringOffloadingSpec", cpu_bytes_to_use=1 << 30, secondary_tiers=tiers)


@pytest.mark.parametrize(
    "right",
    [
        spec(),
        spec(**STORE, weights_revision="1", config={"policy": "lru", "storage": {"io-threads": 2}, "admin": {"listen": "unix:"}}),
        tier(**STORE, io="threads", backpressure={}, shared={"url": "redis://a"}),
        spec(**STORE)["kv_connector_extra_config"],
        {"terrace": {"policy": "lru", "admin": {"listen": "unix:"}}},
    ],
)
def test_what_is_right(right: dict[str, Any]) -> None:
    assert list(problems(json.dumps(right))) == []


@pytest.mark.parametrize(
    "wrong, said",
    [
        ("{", "no JSON"),
        ([], "no JSON object"),
        ({**spec(), "kv_connector": "Offloading"}, "kv_connector is 'Offloading', must be \"OffloadingConnector\""),
        (transfer(spec_name="Terrace"), "spec_name is 'Terrace'"),
        (transfer(spec_name="TerraceOffloadingSpec"), "cpu_bytes_to_use must be"),
        (spec(path="/kv"), "path and capacity belong together"),
        (spec(**STORE, wieghts_revision="1"), "did you mean 'weights_revision'?"),
        (spec(config={"polcy": "lru"}), "policy"),
        (spec(config={"policy": "fifo"}), "fifo"),
        (spec(**STORE, config={"storage": {"io-treads": 1}}), "did you mean 'io_threads'?"),
        (tier(path="/kv", capcity="1GiB"), "'capcity' is no option of TerraceTier; did you mean 'capacity'?"),
        (tier(path="/kv"), '"capacity" must be the disk space'),
        (transfer(spec_name="TieringOffloadingSpec", cpu_bytes_to_use=1), 'no tier of type "terrace"'),
        ({"terrace": {"storage": {}}}, "storage in additional_config"),
        ({"terrace": {"polciy": "lru"}}, "policy"),
    ],
)
def test_what_is_wrong(wrong: Any, said: str) -> None:
    (problem,) = problems(wrong if isinstance(wrong, str) else json.dumps(wrong))
    assert said in problem


def test_each_option_of_storage_is_known() -> None:
    """But those that a tier and the spec make themselves."""
    text = CONFIGURATION.read_text()
    table = text[text.index("## `[storage]`") : text.index("## `[shared]`")]
    names = {name.replace("-", "_") for name in re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)}
    assert names - {"where", "capacity", "name", "stripe"} == set(STORAGE)


def test_the_command() -> None:
    def check(given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "terrace_kv", "check", json.dumps(given)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    right, wrong = check(spec(**STORE)), check(tier(path="/kv", capcity="1GiB"))
    assert (right.returncode, right.stdout) == (0, "the options of Terrace are right\n")
    assert wrong.returncode == 1 and "did you mean 'capacity'?" in wrong.stderr and wrong.stderr.count("\n") == 1
