"""vLLM has the signatures that the adapter was written for, and the stand-in of the other tests has nothing that vLLM lacks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import signatures
from signatures import Shape, Source

pytestmark = pytest.mark.gate

STAND_IN = Path(__file__).parents[1] / "tests" / "stand_ins" / "vllm_stand_in.py"
vllm = signatures.installed("vllm")
stand_in = Source("stand_in", STAND_IN)


def stood_in() -> dict[str, tuple[str, ...]]:
    """MODULES of the stand-in."""
    for node in ast.parse(STAND_IN.read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "MODULES":
            assert node.value is not None
            return dict(ast.literal_eval(node.value))
    raise AssertionError(f"{STAND_IN} has no MODULES")


def takes(method: ast.FunctionDef, given: list[str]) -> bool:
    """Whether a method begins with these parameters, and has defaults for all others."""
    all_of_it = signatures.parameters(method)
    return list(all_of_it)[: len(given)] == given and all(list(all_of_it.values())[len(given) :])


def objections(ours: Shape, theirs: Shape) -> list[str]:
    """What a class of the stand-in has that vLLM's has not, and what a caller must give to vLLM's that ours does not know."""
    found = [f"{name}: vLLM has no such name" for name in sorted(ours.names() - theirs.names())]
    for name, method in ours.methods.items():
        if name in theirs.methods and not takes(theirs.methods[name], list(signatures.parameters(method))):
            found.append(f"vLLM has {signatures.signature(theirs.methods[name])}")
    shared = [name for name in theirs.fields if name in ours.fields]
    if shared != [name for name in ours.fields if name in theirs.fields]:
        found.append(f"vLLM has the fields in the order {', '.join(shared)}")
    if ours.fields and "__init__" not in ours.methods:
        needed = [name for name, text in theirs.fields.items() if "=" not in text]
        found += [f"{name}: the stand-in has no such field" for name in needed if name not in ours.fields]
    return found


@pytest.mark.skipif(vllm is None, reason="vLLM is not installed; tools/check --engines installs it")
def test_no_signature_has_changed() -> None:
    assert vllm is not None
    changed = signatures.differences(vllm)
    assert not changed, f"{changed}\n\nAfter the adapter fits: python python/engine_tests/signatures.py --write"


@pytest.mark.skipif(vllm is None, reason="vLLM is not installed; tools/check --engines installs it")
@pytest.mark.parametrize("module, name", [(module, name) for module, names in stood_in().items() for name in names])
def test_the_stand_in_has_only_what_vllm_has(module: str, name: str) -> None:
    assert vllm is not None
    ours, theirs = stand_in.shape("stand_in", name), vllm.shape(module, name)
    assert theirs is not None, f"vLLM has no class {module}.{name}"
    assert ours is not None and objections(ours, theirs) == []


@pytest.mark.skipif(vllm is None, reason="vLLM is not installed; tools/check --engines installs it")
def test_terraces_manager_has_all_that_the_scheduler_reads() -> None:
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    from terrace_kv.vllm.gpu_manager import GpuManager

    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config = KVCacheConfig(num_blocks=8, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    manager = GpuManager(KVCacheManager(config, max_model_len=64, scheduler_block_size=16, hash_block_size=16))
    try:
        assert vllm is not None
        reads = vllm.manager_reads()
        assert {".allocate_slots", ".block_pool.free_blocks", ".coordinator.single_type_managers", "group.block_size"} <= reads
        for each in sorted(reads):
            value: object = manager
            for name in each.removeprefix("group").strip(".").split("."):
                if each.startswith("group") and value is manager:
                    value = manager.coordinator.single_type_managers[0]
                assert hasattr(value, name), each
                value = getattr(value, name)
    finally:
        manager.close()


def test_the_listed_names_include_those_of_the_stand_in() -> None:
    for module, names in stood_in().items():
        assert set(names) <= set(signatures.VLLM[module])


PACKAGE = """
class Base:
    def __init__(self, size):
        self.size = size
class Job(Base):
    number: int
    rows: list = None
    @abstractmethod
    def submit(self, keys: list[bytes], *, late: bool = False) -> None:
        self._waiting = keys
"""


@pytest.fixture
def package(tmp_path: Path) -> Source:
    (tmp_path / "jobs.py").write_text(PACKAGE)
    (tmp_path / "__init__.py").write_text("from package.jobs import Job as Work\n")
    return Source("package", tmp_path)


def test_a_class_is_described_by_its_public_names(package: Source) -> None:
    assert signatures.describe(package, {"package": ("Work", "Gone"), "package.jobs": ("Job",)}).splitlines() == [
        "package.Gone: missing",
        *(
            line
            for name in ("package.Work", "package.jobs.Job")
            for line in (
                f"{name}(Base)",
                "    number: int",
                "    rows: list = None",
                "    self.size",
                "    __init__(self, size)",
                "    @abstractmethod submit(self, keys: list[bytes], *, late: bool=False) -> None",
            )
        ),
    ]


@pytest.mark.parametrize(
    "stands_in, says",
    [
        ("class Job:\n number: int", []),
        ("class Job:\n number: int\n _waiting: list", []),
        ("class Job:\n rows: list\n number: int", ["vLLM has the fields in the order number, rows"]),
        ("class Job:\n rows: list", ["number: the stand-in has no such field"]),
        ("class Job:\n def cancel(self): ...", ["cancel: vLLM has no such name"]),
        ("class Job:\n def submit(self, keys): ...", []),
        ("class Job:\n def submit(self): ...", [
            "vLLM has @abstractmethod submit(self, keys: list[bytes], *, late: bool=False) -> None"]),
        ("class Job:\n def submit(self, key, late): ...", [
            "vLLM has @abstractmethod submit(self, keys: list[bytes], *, late: bool=False) -> None"]),
    ],
)  # fmt: skip
def test_a_stand_in_that_differs_is_named(package: Source, tmp_path: Path, stands_in: str, says: list[str]) -> None:
    file = tmp_path / "stand_in.py"
    file.write_text(stands_in)
    ours, theirs = Source("stand_in", file).shape("stand_in", "Job"), package.shape("package", "Work")
    assert ours is not None and theirs is not None and objections(ours, theirs) == says
