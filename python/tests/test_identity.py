"""Names of weights and namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from terrace_kv.identity import config_digest, contents, namespace, weights_revision


def model(directory: Path, content: bytes = b"weights") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text("{}")
    (directory / "model-1.safetensors").write_bytes(content)
    (directory / "model-2.safetensors").write_bytes(b"more")
    return directory


def test_the_digest_follows_the_contents(tmp_path: Path) -> None:
    first = weights_revision(str(model(tmp_path / "a")))
    assert first.startswith("sha256:")
    assert weights_revision(str(model(tmp_path / "b"))) == first, "the path does not matter"
    assert weights_revision(str(model(tmp_path / "a", b"WEIGHTS"))) != first, "other weights at the same path"


def test_the_digest_follows_names(tmp_path: Path) -> None:
    path = model(tmp_path)
    first = weights_revision(str(path))
    (path / "model-1.safetensors").rename(path / "model-3.safetensors")
    assert weights_revision(str(path)) != first


def test_files_without_weights_do_not_count(tmp_path: Path) -> None:
    path = model(tmp_path)
    first = weights_revision(str(path))
    (path / "README.md").write_text("new")
    assert weights_revision(str(path)) == first


def test_one_file_is_a_model(tmp_path: Path) -> None:
    assert weights_revision(str(model(tmp_path) / "model-1.safetensors")).startswith("sha256:")


def test_a_stated_name_is_taken(tmp_path: Path) -> None:
    assert weights_revision(str(tmp_path), "v7") == "stated:v7"
    with pytest.raises(ValueError, match="weights_revision is empty"):
        weights_revision(str(tmp_path), "")


def test_weights_that_cannot_be_named_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no weight files.*state weights_revision"):
        weights_revision(str(tmp_path))


def test_a_model_of_the_hub_is_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="neither a directory nor in the local cache"):
        weights_revision("maker/model")
    snapshots = tmp_path / "models--maker--model" / "snapshots"
    (snapshots / "abc123").mkdir(parents=True)
    assert weights_revision("maker/model") == "commit:abc123"
    (snapshots / "def456").mkdir()
    with pytest.raises(ValueError, match="2 snapshots"):
        weights_revision("maker/model")


def test_each_field_makes_another_namespace() -> None:
    fields = {"model": "a", "dtype": "bfloat16", "parallel": {"tp_size": 2}}
    first = namespace("an engine", fields)
    assert namespace("an engine", dict(reversed(fields.items()))) == first, "the order does not matter"
    assert namespace("another", fields) != first
    assert namespace("an engine", {**fields, "dtype": "float16"}) != first
    assert namespace("an engine", {**fields, "parallel": {"tp_size": 4}}) != first


def test_all_that_says_how_the_weights_are_used_counts(tmp_path: Path) -> None:
    path = model(tmp_path)
    found = {config_digest(str(path))}
    for name in ("config.json", "preprocessor_config.json", "hf_quant_config.json", "adapter_config.json", "modeling_of_it.py"):
        (path / name).write_text("other")
        found.add(config_digest(str(path)))
    assert len(found) == 6
    for name in ("tokenizer.json", "chat_template.json", "generation_config.json", "model.safetensors.index.json", "README.md"):
        (path / name).write_text("other")
        assert config_digest(str(path)) in found, f"{name} changes no block of given tokens"
    assert config_digest("maker/model") is None


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    path = model(tmp_path)
    digest = config_digest(str(path))
    os.mkfifo(path / "pipe.json")  # nobody writes to it, so whoever opens it waits
    (path / "folder.json").mkdir()
    assert config_digest(str(path)) == digest


def test_contents_say_what_cannot_be_named(tmp_path: Path) -> None:
    assert contents("the draft model", str(model(tmp_path / "a"))) == contents("an adapter", str(model(tmp_path / "b")))
    with pytest.raises(ValueError, match="^the draft model: .* has no weight files .*; state weights_revision$"):
        (tmp_path / "empty").mkdir()
        contents("the draft model", str(tmp_path / "empty"))
