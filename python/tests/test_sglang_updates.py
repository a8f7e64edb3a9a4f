"""Weights and adapters that SGLang changes at run time without a name for the new ones."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")

from sglang_under_test import REAL, attach, config, fill, indices, keys, make_pool

from terrace_kv.sglang import identity, updates


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The classes that write weights in a server. SGLang's own need a GPU."""

    class WeightUpdater:
        def update_weights_from_disk(self, path: str) -> str:
            return "disk " + path

        def load_weights_from_distributed(self, weights: Any) -> None: ...

        def update_weights_from_tensor(self, weights: Any) -> None:
            raise RuntimeError("half of them are written")

        def update_weights_from_ipc(self, request: Any) -> None: ...

    class LoRAManager:
        def load_lora_adapter(self, lora_ref: Any) -> str:
            return f"loaded {lora_ref.lora_id}"

        def load_lora_adapter_from_tensors(self, lora_ref: Any, tensors: Any) -> None: ...

    for module, owner in ((updates.WEIGHTS[0], WeightUpdater), (updates.ADAPTERS[0], LoRAManager), (updates._RUNNER, None)):
        made = ModuleType(module)
        if owner is not None:
            setattr(made, owner.__name__, owner)
        monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setattr(updates, "_mark", None)
    monkeypatch.setattr(updates, "_loaded", {})
    yield SimpleNamespace(updater=WeightUpdater, adapters=LoRAManager)


def finds(storage: Any) -> int:
    return int(storage.batch_exists(keys(2)))


def stores(storage: Any, pool: Any) -> bool:
    return all(storage.batch_set_v1(keys(2), indices(pool, [0, 1])))


def adapter(path: Path, content: bytes) -> Any:
    path.mkdir(exist_ok=True)
    (path / "adapter_model.safetensors").write_bytes(content)
    return SimpleNamespace(lora_id="of a name", lora_path=str(path))


def test_pages_of_former_weights_are_not_found_although_nobody_names_the_new_ones(
    tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool("mha")
    fill(pool, 1)
    storage = attach(config(tmp_path), pool)
    assert stores(storage, pool) and finds(storage) == 2
    assert server.updater().update_weights_from_disk("p") == "disk p"
    with caplog.at_level(logging.ERROR):
        assert finds(storage) == 0 and not stores(storage, pool)
    assert "the weights were updated at run time; detach" in caplog.text
    storage.close()
    storage = attach(config(tmp_path), pool)
    assert finds(storage) == 0 and stores(storage, pool) and finds(storage) == 2
    with pytest.raises(RuntimeError, match="half of them"):
        server.updater().update_weights_from_tensor({})
    assert finds(storage) == 0
    storage.close()
    monkeypatch.setattr(updates, "_mark", None)  # the next process loads the weights of the files again
    storage = attach(config(tmp_path), pool)
    assert finds(storage) == 2
    fill(pool, 2)
    assert storage.batch_get_v1(keys(2), indices(pool, [0, 1])) == [True, True]
    storage.close()


@pytest.mark.parametrize("function", updates.WEIGHTS[2])
def test_each_way_to_other_weights_is_noticed_once(function: str, server: Any) -> None:
    updates.watch([])
    updates.watch([])
    before = identity.weights_now()
    assert identity.weights_are(before)
    if function == "update_weights_from_tensor":
        with pytest.raises(RuntimeError):
            server.updater().update_weights_from_tensor({})
    else:
        getattr(server.updater(), function)("x")
    assert not identity.weights_are(before) and identity.weights_are(identity.weights_now())
    assert not hasattr(getattr(server.updater, function).__wrapped__, "__wrapped__")


def test_an_adapter_with_other_contents_under_its_id_is_noticed(tmp_path: Path, server: Any) -> None:
    first = adapter(tmp_path / "a", b"first")
    updates.watch([first])
    manager = server.adapters()
    assert manager.load_lora_adapter(first) == "loaded of a name" and updates.mark() is None, "it was evicted, and comes back"
    manager.load_lora_adapter(SimpleNamespace(lora_id="another", lora_path=first.lora_path))
    assert updates.mark() is None, "an id of its own"
    manager.load_lora_adapter(adapter(tmp_path / "a", b"second"))
    marks = {updates.mark()}
    manager.load_lora_adapter_from_tensors(first, {})
    marks.add(updates.mark())
    manager.load_lora_adapter_from_tensors(first, {})
    marks.add(updates.mark())
    assert len(marks) == 3 and None not in marks
    nameless = SimpleNamespace(lora_id="nameless", lora_path="nobody/has-this")
    manager.load_lora_adapter(nameless)
    before = updates.mark()
    manager.load_lora_adapter(nameless)
    assert updates.mark() != before, "nothing tells whether it is the same"


def test_a_version_that_changes_weights_otherwise_is_refused(tmp_path: Path, server: Any) -> None:
    del server.updater.update_weights_from_ipc
    with pytest.raises(ValueError, match="this version of SGLang has no WeightUpdater.update_weights_from_ipc"):
        attach(config(tmp_path), make_pool("mha"))


@pytest.mark.skipif(not REAL, reason="SGLang is not installed")
@pytest.mark.parametrize("place", [updates.WEIGHTS, updates.ADAPTERS])
def test_sglang_changes_weights_by_these_functions(place: tuple[str, str, tuple[str, ...]]) -> None:
    module, owner, names = place
    folder = sys.modules["sglang"].__path__[0]
    source = Path(folder, *module.split(".")[1:]).with_suffix(".py").read_text()
    (kind,) = (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == owner)
    public = {each.name for each in kind.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")}
    writers = {name for name in public if name.startswith(("update_weights", "load_weights", "load_lora_adapter"))}
    assert writers == set(names)
