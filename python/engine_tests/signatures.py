"""The signatures of a package's classes and functions, read from its source, so that changes between two versions are seen.

    python signatures.py             prints what differs between signatures-vllm.txt and the installed vLLM
    python signatures.py --write     writes signatures-vllm.txt

Nothing is imported from the package, so its own dependencies need not be there.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

WRITTEN = Path(__file__).with_name("signatures-vllm.txt")

VLLM: dict[str, tuple[str, ...]] = {
    "vllm.logger": ("init_logger",),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics": ("OffloadingConnectorStats",),
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler": ("OffloadingConnectorScheduler",),
    "vllm.distributed.parallel_state": ("get_world_group", "in_the_same_node_as"),
    "vllm.v1.core.block_pool": ("BlockPool",),
    "vllm.v1.core.kv_cache_manager": ("KVCacheBlocks", "KVCacheManager"),
    "vllm.v1.core.kv_cache_utils": (
        "KVCacheBlock", "generate_block_hash_extra_keys", "make_block_hash_with_group_id", "maybe_convert_block_hash",
    ),
    "vllm.v1.kv_offload.base": (
        "CanonicalKVCaches", "GPULoadStoreSpec", "LoadStoreSpec", "Locality", "LookupResult", "Medium",
        "OffloadingCounterMetadata", "OffloadingEvent", "OffloadingGaugeMetadata", "OffloadingManager", "OffloadingSpec",
        "OffloadingWorker",
        "PrepareStoreOutput", "ReqContext", "RequestOffloadingContext", "ScheduleEndContext", "TransferResult",
    ),
    "vllm.v1.kv_offload.config": (
        "OffloadingCacheConfig", "OffloadingConfig", "OffloadingGroupConfig", "OffloadingModelConfig", "OffloadingParallelConfig",
    ),
    "vllm.v1.kv_offload.cpu.common": ("CPULoadStoreSpec", "CPUOffloadingMetrics"),
    "vllm.v1.kv_offload.cpu.shared_offload_region": ("SharedOffloadRegion",),
    "vllm.v1.kv_offload.factory": ("OffloadingSpecFactory",),
    "vllm.v1.kv_offload.tiering.base": ("JobResult", "SecondaryTierManager", "TransferJob"),
    "vllm.v1.kv_offload.tiering.factory": ("SecondaryTierFactory",),
    "vllm.v1.kv_offload.tiering.spec": ("TieringOffloadingSpec",),
    "vllm.v1.metrics.cache_hit_source": ("CacheHitSource",),
}  # fmt: skip
"""What the adapter and its tests implement or call, by module."""

MANAGER_READERS = (
    "vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler", "vllm.v1.engine.core",
    "vllm.distributed.kv_transfer.kv_connector.v1.base", "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
)  # fmt: skip
"""Modules that read the scheduler's KVCacheManager."""
_OF_MANAGER = re.compile(r"(?:.*\.)?_?kv_cache_manager((?:\.\w+)+)|cache_manager((?:\.\w+)+)")
_OF_GROUP = re.compile(r"manager((?:\.\w+)+)")


@dataclass
class Shape:
    """What a class has, with what it inherits from classes of the same package."""

    bases: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    """Names in the class body: the fields of a dataclass and the members of an enumeration. The text is the source."""
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    """Names that methods set on self, and properties."""

    def names(self) -> set[str]:
        return {*self.fields, *self.methods, *self.attributes}


class Source:
    """The source files of a package. `root` is the folder of the package; a module alone is a file."""

    def __init__(self, package: str, root: Path) -> None:
        self._package, self._root = package, root

    def shape(self, module: str, name: str) -> Shape | None:
        """The class, or None if the module has no class of this name."""
        found = self._find(module, name)
        if found is None or not isinstance(found[1], ast.ClassDef):
            return None
        module, node = found[0], found[1]
        shape = Shape(bases=[ast.unparse(base) for base in node.bases])
        for base in reversed(shape.bases):
            inherited = self.shape(module, base) if base.isidentifier() else None
            if inherited is not None:
                shape.fields.update(inherited.fields)
                shape.methods.update(inherited.methods)
                shape.attributes |= inherited.attributes
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                if "property" in _decorators(each):
                    shape.attributes.add(each.name)
                shape.methods[each.name] = each
                shape.attributes |= set(_set_on_self(each))
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                shape.fields[each.target.id] = ast.unparse(each)
            elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                shape.fields[each.targets[0].id] = ast.unparse(each)
        return shape

    def function(self, module: str, name: str) -> ast.FunctionDef | None:
        """The function, or None if the module has no function of this name."""
        found = self._find(module, name)
        return found[1] if found is not None and isinstance(found[1], ast.FunctionDef) else None

    def _find(self, module: str, name: str) -> tuple[str, ast.stmt] | None:
        """The definition, and the module that has it: a module may have it from another one of the package."""
        for node in self._parse(module):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == self._package:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self._find(node.module, alias.name)
        return None

    def manager_reads(self) -> set[str]:
        """What the modules read of a KVCacheManager, as ".coordinator.single_type_managers", and of its managers of groups, as
        "group.block_size"."""
        found: set[str] = set()
        for module in MANAGER_READERS:
            for node in (each for top in self._parse(module) for each in ast.walk(top)):
                text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
                if (match := _OF_MANAGER.fullmatch(text)) is not None:
                    found.add(match[1] or match[2])
                elif (match := _OF_GROUP.fullmatch(text)) is not None:
                    found.add("group" + match[1])
        return found

    @cache  # noqa: B019
    def _parse(self, module: str) -> Sequence[ast.stmt]:
        path = self._root.joinpath(*module.split(".")[1:])
        for file in (path, path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return ast.parse(file.read_text()).body
        return ()


def installed(package: str) -> Source | None:
    """The source of an installed package, or None if it is not installed."""
    spec = PathFinder.find_spec(package)  # the module that is loaded may be a stand-in
    return Source(package, Path(spec.origin).parent) if spec is not None and spec.origin is not None else None


def describe(source: Source, names: Mapping[str, Sequence[str]]) -> str:
    """One line for each name, field and method that is public, in an order that does not depend on the source."""
    listed = [(module, name) for module in sorted(names) for name in sorted(names[module])]
    return "".join(line + "\n" for module, name in listed for line in _lines(source, module, name))


def signature(method: ast.FunctionDef) -> str:
    """A function without its body, on one line."""
    returned = f" -> {ast.unparse(method.returns)}" if method.returns is not None else ""
    marks = "".join(f"@{each} " for each in _decorators(method))
    return f"{marks}{method.name}({ast.unparse(method.args)}){returned}"


def parameters(method: ast.FunctionDef) -> dict[str, bool]:
    """The names of the parameters in order, without self and cls, and whether each has a default."""
    given = method.args
    positional = [*given.posonlyargs, *given.args]
    optional = [False] * (len(positional) - len(given.defaults)) + [True] * len(given.defaults)
    named = {each.arg: value for each, value in zip(positional, optional) if each.arg not in ("self", "cls")}
    return {**named, **{each.arg: default is not None for each, default in zip(given.kwonlyargs, given.kw_defaults)}}


def _lines(source: Source, module: str, name: str) -> Iterator[str]:
    function = source.function(module, name)
    if function is not None:
        yield f"{module}.{signature(function)}"
        return
    shape = source.shape(module, name)
    if shape is None:
        yield f"{module}.{name}: missing"
        return
    yield f"{module}.{name}({', '.join(shape.bases)})"
    yield from (f"    {text}" for each, text in sorted(shape.fields.items()) if _is_public(each))
    yield from (f"    self.{each}" for each in sorted(shape.attributes - shape.fields.keys()) if _is_public(each))
    yield from (f"    {signature(method)}" for each, method in sorted(shape.methods.items()) if _is_public(each))


def _is_public(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def _decorators(method: ast.FunctionDef) -> list[str]:
    return [ast.unparse(each) for each in method.decorator_list if ast.unparse(each) not in ("override", "torch.no_grad()")]


def _set_on_self(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def written(source: Source) -> str:
    """What signatures-vllm.txt has."""
    return describe(source, VLLM) + "".join(f"read of a KVCacheManager: {each}\n" for each in sorted(source.manager_reads()))


def differences(source: Source) -> str:
    """What differs from the signatures that were written, as a unified diff. Empty if nothing does."""
    was, now = WRITTEN.read_text().splitlines(), written(source).splitlines()
    return "\n".join(difflib.unified_diff(was, now, "as written", "as installed", lineterm="", n=0))


def main() -> None:
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit("usage: signatures.py [--write]")
    source = installed("vllm")
    if source is None:
        sys.exit("signatures: vLLM is not installed for this Python; tools/check --engines installs it")
    if sys.argv[1:]:
        WRITTEN.write_text(written(source))
    else:
        print(differences(source) or "no signature has changed")


if __name__ == "__main__":
    main()
