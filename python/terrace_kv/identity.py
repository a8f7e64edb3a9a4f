"""Names for the meaning of stored blocks: the model, its weights, and everything else that decides the bytes of a block.

Blocks are kept after the end of a process. A later process may have other weights at the same path, another data type or another
number of ranks. Then the old blocks must be misses. The adapters put everything that decides the bytes into one namespace for the
keys of a Store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
# Files beside the weights that decide only the tokens of a text, and not the bytes of a block of given tokens.
_OF_TEXT = (
    "added_tokens.json",
    "chat_template.json",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
_READ_BYTES = 4 << 20


def namespace(engine: str, fields: Mapping[str, Any]) -> bytes:
    """The namespace for the keys of a Store: a digest of all fields. A different value of any field gives a different
    namespace."""
    text = json.dumps({"engine": engine, **fields}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def weights_revision(model: str, stated: str | None = None) -> str:
    """Names the weights of a model.

    Args:
        model: A directory with weight files, one weight file, or the name of a model in the local cache of the hub.
        stated: The name that the operator gives to the weights, and to everything else that the engine loads. If it is given, no
            file is read.

    Returns:
        The stated name; for files, a digest of their contents; for a model of the hub, its commit.

    Raises:
        ValueError: The weights cannot be named; the sentence says why.
    """
    if stated is not None:
        if not stated:
            raise ValueError("weights_revision is empty; state a name that changes whenever the weights do")
        return "stated:" + stated
    path = Path(model)
    if path.is_file():
        return "sha256:" + _digest([path], path.parent)
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix in _WEIGHTS and each.is_file())
        if not files:
            raise ValueError(f"{model} has no weight files ({', '.join(_WEIGHTS)}); state weights_revision")
        return "sha256:" + _digest(files, path)
    return "commit:" + _hub_commit(model)


def config_digest(model: str) -> str | None:
    """A digest of the files beside the weights that decide how the weights are used: RoPE and windows, quantisation, the
    processing of media, the scale of an adapter, code. None if there are none, as for a model of the hub, whose commit covers
    them."""
    found = [*Path(model).glob("*.json"), *Path(model).glob("*.py")] if Path(model).is_dir() else []
    used = [each for each in found if each.is_file() and each.name not in _OF_TEXT]
    files = sorted(each for each in used if not each.name.endswith(".index.json"))
    return _digest(files, Path(model)) if files else None


def contents(what: str, path: str) -> dict[str, str | None]:
    """Names the contents of a path: an adapter, a draft model, a file of scales. Two paths with equal contents have equal names.

    Args:
        what: Its role for the engine; an error message begins with it.
        path: The same as `model` of weights_revision().

    Raises:
        ValueError: It cannot be named; the sentence says why.
    """
    try:
        return {"weights": weights_revision(path), "config": config_digest(path)}
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _digest(files: list[Path], root: Path) -> str:
    """A digest of the names and contents of files. Several files are read in parallel."""
    with ThreadPoolExecutor(min(8, len(files))) as pool:
        digests = list(pool.map(_file_digest, files))
    whole = hashlib.sha256()
    for file, digest in zip(files, digests):
        name = str(file.relative_to(root)).encode()
        whole.update(len(name).to_bytes(4, "little") + name + digest)
    return whole.hexdigest()


def _file_digest(file: Path) -> bytes:
    digest = hashlib.sha256()
    with open(file, "rb", buffering=0) as stream:
        while piece := stream.read(_READ_BYTES):
            digest.update(piece)
    return digest.digest()


def _hub_commit(model: str) -> str:
    """The commit of the only snapshot that the local cache of the hub has of the model."""
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    snapshots = Path(cache) / ("models--" + model.replace("/", "--")) / "snapshots"
    commits = sorted(each.name for each in snapshots.iterdir() if each.is_dir()) if snapshots.is_dir() else []
    if not commits:
        raise ValueError(f"{model} is neither a directory nor in the local cache of the hub ({cache}); state weights_revision")
    if len(commits) > 1:
        raise ValueError(
            f"{model} has {len(commits)} snapshots in the local cache of the hub; state weights_revision, for example the commit "
            "that is served"
        )
    return commits[0]
