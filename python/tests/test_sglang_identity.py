"""TerraceStorage: what the pages of a store mean, and which rank has which store."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")

from sglang_under_test import attach, config, fill, flat, indices, keys, make_pool
from test_sglang import stored

from terrace_kv.sglang import identity
from terrace_kv.sglang.pages import PoolPages

# ---- what the pages mean


def hits(tmp_path: Path, **changes: Any) -> int:
    storage = attach(config(tmp_path, **changes), make_pool("mha"))
    try:
        return int(storage.batch_exists(keys(4)))
    finally:
        storage.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": {"weights_revision": "r2"}},
        {"model_name": "another model"},
        {"tp_size": 2},
        {"pp_size": 2},
        {"attn_cp_size": 2},
    ],
)
def test_pages_of_anything_else_are_misses(tmp_path: Path, changes: dict[str, Any]) -> None:
    stored(tmp_path)[0].close()
    assert hits(tmp_path, **changes) == 0
    assert hits(tmp_path) == 4


def test_pages_of_another_layout_are_misses(tmp_path: Path) -> None:
    stored(tmp_path)[0].close()
    storage = attach(config(tmp_path), make_pool("mha", "page_head"))
    assert storage.batch_exists(keys(4)) == 0
    storage.close()


def test_other_weights_at_the_same_path_are_misses(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "config.json").write_text("{}")
    of_files = {"model_name": str(model), "extra": {"weights_revision": None}}
    stored(tmp_path, **of_files)[0].close()
    assert hits(tmp_path, **of_files) == 4
    (model / "config.json").write_text('{"rope_scaling": 2}')
    assert hits(tmp_path, **of_files) == 0
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"WEIGHTS")
    assert hits(tmp_path, **of_files) == 0
    (model / "model.safetensors").write_bytes(b"weights")
    assert hits(tmp_path, **of_files) == 4


def model(path: Path) -> Path:
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    return path


@pytest.mark.parametrize(
    "leaf", ["speculative_draft_model_path", "lora_paths", "uno_lora_path", "quantization_param_path", "kt_weight_path"]
)
def test_what_is_loaded_by_name_counts_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaf: str) -> None:
    of_files = {"model_name": str(model(tmp_path / "model")), "extra": {"weights_revision": None}}
    file = model(tmp_path / "other") / "model.safetensors"
    path = str(file if leaf == "quantization_param_path" else file.parent)
    adapter = SimpleNamespace(lora_name="a", lora_path=path, lora_id="of name and path")
    leaves = {leaf: [adapter] if leaf == "lora_paths" else path}
    monkeypatch.setattr(identity, "_leaf", leaves.get)
    monkeypatch.setattr(identity, "_adapters_name_pages", lambda: True)
    stored(tmp_path, **of_files)[0].close()
    assert hits(tmp_path, **of_files) == 4
    file.write_bytes(b"WEIGHTS")
    assert hits(tmp_path, **of_files) == 0
    file.unlink()
    with pytest.raises(ValueError, match=f"(the adapter .*|{leaf}): .*; state weights_revision"):
        hits(tmp_path, **of_files)
    assert hits(tmp_path, model_name=str(tmp_path / "model")) == 0, "with a stated name nothing is read"


@pytest.mark.parametrize("given", [["a=/p"], ["/p"], [{"lora_name": "a", "lora_path": "/p"}], {"a": "/p"}])
def test_adapters_in_each_form(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    monkeypatch.setattr(identity, "_leaf", {"lora_paths": given}.get)
    assert identity._adapters() == ["/p"]


def test_adapters_are_refused_where_pages_have_no_names_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_leaf", {"enable_lora": True}.get)
    monkeypatch.setattr(identity, "_adapters_name_pages", lambda: False)
    with pytest.raises(ValueError, match="names pages by tokens alone"):
        hits(tmp_path)


def test_weights_from_elsewhere_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_leaf", {"load_format": "remote_instance"}.get)
    with pytest.raises(ValueError, match="load_format is remote_instance.*state weights_revision"):
        hits(tmp_path, model_name=str(model(tmp_path / "model")), extra={"weights_revision": None})


def test_weights_without_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="state weights_revision"):
        attach(config(tmp_path, model_name=str(tmp_path), extra={"weights_revision": None}), make_pool("mha"))
    with pytest.raises(ValueError, match="SGLang names no model; state weights_revision"):
        attach(config(tmp_path, model_name=None, extra={"weights_revision": None}), make_pool("mha"))


def test_another_version_of_sglang_has_its_own_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path)[0].close()
    monkeypatch.setattr(identity, "_version", lambda: "0.99")
    assert hits(tmp_path) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"tp_size": 2},
        {"pp_size": 2, "pp_rank": 1},
        {"attn_cp_size": 2, "attn_cp_rank": 1},
        {"dcp_size": 2, "tp_size": 2, "is_mla_model": True, "logical_page_size": 32},
        {"model_name": "b"},
        {"tp_rank": 1, "tp_size": 2},
    ],
)
def test_all_of_a_rank_is_in_the_namespace(changes: dict[str, Any]) -> None:
    pages = PoolPages("kv", make_pool("mha"))

    def names(of: Any) -> bytes:
        return identity.pool_namespace(identity.base_fields(of, "r1"), pages, 4096, of.tp_rank)

    usual = config("p", tp_size=2) if "tp_rank" in changes else config("p")
    assert names(config("p", **changes)) != names(usual) == names(usual)
    other_pool = PoolPages("draft", make_pool("mha"))
    base = identity.base_fields(usual, "r1")
    assert len({identity.pool_namespace(base, *each, 0) for each in ((pages, 4096), (pages, 8192), (other_pool, 4096))}) == 3


def test_the_rank_of_a_sharded_pool_is_in_its_namespace(tmp_path: Path) -> None:
    found = set()
    for rank in (0, 1):
        storage = attach(config(tmp_path, tp_size=2, tp_rank=rank), make_pool("mha"))
        found.add(storage._pools["kv"]._namespace)
        storage.close()
    assert len(found) == 2


# ---- ranks


def test_ranks_have_stores_of_their_own(tmp_path: Path) -> None:
    first, pool, _ = stored(tmp_path, tp_size=2)
    other = make_pool("mha")
    fill(other, 9)
    second = attach(config(tmp_path, tp_size=2, tp_rank=1), other)
    assert second.batch_exists(keys(4)) == 0
    assert second.batch_set_v1(keys(4), indices(other, [0, 1, 2, 3])) == [True] * 4
    want = flat(other, 3)
    assert second.batch_get_v1(keys(4), indices(other, [5, 6, 7, 8])) == [True] * 4
    assert flat(other, 8) == want != flat(pool, 3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tp0of2-65536", "tp1of2-65536"]
    first.close()
    second.close()


def test_no_two_ranks_have_the_same_store() -> None:
    every = [
        config("p", tp_size=2, tp_rank=tp, pp_size=2, pp_rank=pp, attn_cp_size=2, attn_cp_rank=cp, dp_rank=dp)
        for tp in (0, 1)
        for pp in (0, 1)
        for cp in (0, 1)
        for dp in (0, 1)
    ]
    assert len({identity.store_name(each, each.tp_rank, 4096) for each in every}) == 16
    assert identity.store_name(every[-1], 1, 4096) == "dp1-pp1of2-cp1of2-tp1of2-4096"


def test_a_store_of_other_blocks_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored(tmp_path)[0].close()
    with caplog.at_level(logging.WARNING):
        attach(config(tmp_path), make_pool("mla")).close()
    assert "stores for other page sizes take disk space, too: tp0of1-65536" in caplog.text
