"""TerraceStorage under SGLang's own classes: signatures, the file back end's answers, the threads of its controllers.

Skipped without SGLang. The stand-ins of the other tests are compared with SGLang here.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")

import sglang_under_test as under_test
from sglang_under_test import STAND_INS, attach, config, fill, flat, indices, keys, make_pool

if not under_test.REAL:
    pytest.skip("SGLang is not installed beside torch and orjson", allow_module_level=True)

from sglang.srt.managers.cache_controller import HiCacheController
from sglang.srt.mem_cache import hicache_storage as real
from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool
from sglang.srt.mem_cache.pool_host.group import HostPoolGroup, PoolEntry
from sglang.srt.mem_cache.storage import backend_factory as real_factory
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.observability import metrics_collector as real_metrics
from sglang.srt.runtime_context import get_context, get_parallel

from terrace_kv.sglang import TerraceStorage, identity

PAGE = 16
ALL, TRAILING = real.PoolHitPolicy.ALL_PAGES, real.PoolHitPolicy.TRAILING_PAGES


# ---- the stand-ins


def stand_in(module: ModuleType) -> ModuleType:
    file = STAND_INS.joinpath(*module.__name__.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location("stand_in_" + file.stem, file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("module", [real, real_factory, real_metrics], ids=lambda module: module.__name__)
def test_stand_ins_are_as_sglang_is(module: ModuleType) -> None:
    copy = stand_in(module)
    classes = [each for each in vars(copy).values() if inspect.isclass(each) and each.__module__ == copy.__name__]
    assert classes
    for ours in classes:
        theirs = getattr(module, ours.__name__)
        if dataclasses.is_dataclass(ours):
            assert [(each.name, each.default) for each in dataclasses.fields(ours)] == [
                (each.name, each.default) for each in dataclasses.fields(theirs)
            ]
        elif issubclass(ours, str):
            assert all(theirs[name].value == member.value for name, member in ours.__members__.items())
        else:
            assert ours.__dict__.get("__abstractmethods__", set()) == theirs.__dict__.get("__abstractmethods__", set())
            for name, function in vars(ours).items():
                if inspect.isfunction(function) or isinstance(function, classmethod):
                    assert parameters(getattr(ours, name)) == parameters(getattr(theirs, name)), name


def test_the_back_end_takes_what_sglang_passes() -> None:
    functions = [name for name, each in vars(real.HiCacheStorage).items() if inspect.isfunction(each)]
    for name in functions:
        ours, theirs = parameters(getattr(TerraceStorage, name)), parameters(getattr(real.HiCacheStorage, name))
        assert ours == theirs, name
    assert set(functions) <= set(vars(TerraceStorage))


# ---- answers


def test_hits_are_those_of_the_file_back_end(tmp_path: Path) -> None:
    pools = {"kv": make_pool("mha"), "indexer": make_pool("flat"), "mamba": make_pool("mamba")}
    ours = attach(config(tmp_path / "terrace"), pools["kv"], indexer=pools["indexer"], mamba=pools["mamba"])
    theirs = real.HiCacheFile(config(tmp_path / "terrace"), str(tmp_path / "files"))
    theirs.register_mem_pool_host(pools["kv"])
    for name, pool in pools.items():
        fill(pool, 1)
        theirs.register_mem_host_pool_v2(pool, real.PoolName(name))
    chance = random.Random(2)
    for number in range(25):
        names = keys(8, 100 * number)
        for name, pool in pools.items():
            there = [i for i in range(8) if chance.random() < 0.8]
            put = real.PoolTransfer(real.PoolName(name), indices(pool, there), keys=[names[i] for i in there])
            assert ours.batch_set_v2([put]) == theirs.batch_set_v2([put])
        window = names[-chance.randint(1, 3) :]
        asked = [
            real.PoolTransfer(real.PoolName.INDEXER, hit_policy=ALL),
            real.PoolTransfer(real.PoolName.MAMBA, keys=window, hit_policy=TRAILING),
        ]
        chance.shuffle(asked)
        for transfers in ([], asked[:1], asked):
            assert ours.batch_exists_v2(names, transfers) == theirs.batch_exists_v2(names, transfers)
        assert ours.batch_exists(names) == theirs.batch_exists(names)
    ours.close()


def test_the_configuration_of_the_server_decides_the_namespace() -> None:
    def fields(**server: Any) -> dict[str, Any]:
        with get_context().override_server_args(**server):
            return identity.base_fields(config("p"), "r1")

    base = fields(model_path="a/model")
    assert base["model"] == "a/model" and base["sglang"]
    assert fields(model_path="a/model") == base
    for change in (
        {"model_path": "another/model"},
        {"attention_backend": "triton"},
        {"kv_cache_dtype": "fp8_e5m2"},
        {"json_model_override_args": '{"rope_scaling": 2}'},
        {"revision": "other"},
    ):
        assert fields(**{"model_path": "a/model", **change}) != base


def test_weights_updated_at_run_time_have_no_pages_of_the_former_ones(tmp_path: Path) -> None:
    pool = make_pool("mha")
    fill(pool, 1)
    with get_context().override_server_args(model_path="a/model"):
        storage = attach(config(tmp_path), pool)
        assert all(storage.batch_set_v1(keys(2), indices(pool, [0, 1])))
        get_context().override("a test", weight_version="step 2")
        assert storage.batch_exists(keys(2)) == 0
        assert storage.batch_get_v1(keys(2), indices(pool, [0, 1])) == [False, False]
        assert storage.batch_set_v1(keys(2, 5), indices(pool, [0, 1])) == [False, False]
        storage.close()
        storage = attach(config(tmp_path), pool)
        assert storage.batch_exists(keys(2)) == storage.batch_exists(keys(2, 5)) == 0
        assert storage.batch_set_v1(keys(2), indices(pool, [0, 1])) == [True, True]
        storage.close()


def test_all_leaves_of_the_configuration_exist() -> None:
    with get_context().override_server_args(model_path="a/model"):
        for leaf in identity._LEAVES:
            get_context().config_leaf(leaf)


def test_replicas_of_one_server_have_stores_of_their_own() -> None:
    with get_parallel().override(dp_rank=1):
        assert identity.store_name(config("p"), 0, 4096) == "dp1-tp0of1-4096"
    assert identity.store_name(config("p"), 0, 4096) == "tp0of1-4096"


# ---- controllers


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    with get_parallel().override(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_dcp_rank=0, attn_dcp_size=1, attn_dp_enabled=False, dp_rank=None
    ):
        yield


def controller(kind: type, pool: Any, **fields: Any) -> Any:
    """A controller without a device: what attach, prefetch and backup use of it."""
    made = kind.__new__(kind)
    common = dict(
        enable_storage=False,
        host_memory_mode="cache",
        mem_pool_host=pool,
        storage_host_pool=pool,
        page_size=PAGE,
        storage_backend=None,
        storage_stop_event=threading.Event(),
        attn_cp_group=None,
        attn_tp_group=None,
        tp_group=None,
        pp_group=None,
        enable_storage_metrics=False,
        mem_pool_device=SimpleNamespace(),
        prefetch_hits_sync_groups=[],
        prefetch_completion_sync_groups=[],
    )
    for name, value in {**common, **fields}.items():
        setattr(made, name, value)
    return made


def read_back(made: Any, operation: Any, pool: Any) -> tuple[int, list[bytes]]:
    """Plays the scheduler for one prefetch. Returns the tokens that have come, and the pages."""
    operation = made.prefetch_hit_queue.get(timeout=60)
    operation.host_indices = pool.alloc(operation.storage_hit_count)
    made.prefetch_buffer.put(operation)
    tokens = 0
    while True:
        ack = made.ack_prefetch_queue.get(timeout=60)
        tokens = ack.completed_tokens if ack.completed_tokens is not None else tokens
        if ack.completed_req:
            break
    return tokens, [flat(pool, int(index) // PAGE) for index in operation.host_indices[::PAGE]]


@pytest.mark.parametrize("interface", [{}, {"interface_v1": 0}])
@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct", "page_head"])
def test_the_controller_writes_and_reads_after_a_new_attach(tmp_path: Path, layout: str, interface: dict[str, int]) -> None:
    pool = make_pool("mha", layout, pages=400)
    fill(pool, 1)
    made = controller(HiCacheController, pool)
    extra = config(tmp_path, extra={**interface, "capacity": "64MiB"}).extra_config
    tokens = list(range(150 * PAGE))  # more than one batch of SGLang
    hashes = get_storage_hash_str(tokens, None, page_size=PAGE)
    made.attach_storage_backend("dynamic", PAGE, "a model", dict(extra))
    zero_copy = made.page_get_func.__name__ == "_page_get_zero_copy"
    assert zero_copy is not bool(interface)
    where = pool.alloc(len(tokens))
    want = [flat(pool, int(index) // PAGE) for index in where[::PAGE]]
    made.write_storage(where, tokens, hash_value=hashes)
    assert made.ack_backup_queue.get(timeout=60).completed_tokens == len(tokens)
    made.detach_storage_backend()
    assert made.storage_backend is None
    made.attach_storage_backend("dynamic", PAGE, "a model", dict(extra))
    operation = made.prefetch("request", [*tokens, *range(PAGE)])
    assert read_back(made, operation, pool) == (len(tokens), want)
    assert made.storage_backend.statistics()["hits"] >= 150
    made.detach_storage_backend()


def test_a_refused_option_leaves_the_controller_detached(tmp_path: Path) -> None:
    made = controller(HiCacheController, make_pool("mha"))
    extra = config(tmp_path, extra={"capacty": "1GiB"}).extra_config
    with pytest.raises(ValueError, match="did you mean 'capacity'"):
        made.attach_storage_backend("dynamic", PAGE, "a model", extra)
    assert made.storage_backend is None and not made.enable_storage


def test_a_damaged_page_is_computed_again(tmp_path: Path) -> None:
    from test_sglang import damage

    pool = make_pool("mha", pages=40)
    fill(pool, 1)
    made = controller(HiCacheController, pool)
    extra = config(tmp_path).extra_config
    tokens = list(range(10 * PAGE))
    hashes = get_storage_hash_str(tokens, None, page_size=PAGE)
    made.attach_storage_backend("dynamic", PAGE, "a model", dict(extra))
    where = pool.alloc(len(tokens))
    want = [flat(pool, int(index) // PAGE) for index in where[::PAGE]]
    made.write_storage(where, tokens, hash_value=hashes)
    made.ack_backup_queue.get(timeout=60)
    made.detach_storage_backend()
    damage(tmp_path, want[6][:65536])
    made.attach_storage_backend("dynamic", PAGE, "a model", dict(extra))
    arrived, pages = read_back(made, made.prefetch("request", tokens), pool)
    assert arrived == 6 * PAGE and pages[:6] == want[:6]
    made.write_storage(where, tokens, hash_value=hashes)  # SGLang stores what it has computed
    assert made.ack_backup_queue.get(timeout=60).completed_tokens == len(tokens)
    assert read_back(made, made.prefetch("again", tokens), pool) == (len(tokens), want)
    made.detach_storage_backend()


def test_the_controller_of_hybrid_models_moves_all_pools(tmp_path: Path) -> None:
    anchor, states = make_pool("mha", pages=40), make_pool("mamba", pages=20)
    fill(anchor, 1)
    fill(states, 2)
    group = HostPoolGroup(
        [
            PoolEntry(real.PoolName.KV, anchor, SimpleNamespace(), lambda layer: layer, is_primary_index_anchor=True),
            PoolEntry(real.PoolName.MAMBA, states, SimpleNamespace(), lambda layer: layer),
        ]
    )
    made = controller(
        HybridCacheController,
        group,
        storage_host_pool=anchor,
        pp_prefetch_command_group=None,
        pp_prefetch_command_thread=None,
        pp_prefetch_states={},
        pp_prefetch_decisions={},
        pp_prefetch_state_lock=threading.Lock(),
    )
    extra = config(tmp_path).extra_config
    tokens = list(range(8 * PAGE))
    hashes = get_storage_hash_str(tokens, None, page_size=PAGE)

    def attach_again() -> None:
        made.attach_storage_backend("dynamic", PAGE, "a model", dict(extra), host_pools=group.entries)

    attach_again()
    where, state = anchor.alloc(len(tokens)), states.alloc(1)
    want = [flat(anchor, int(index) // PAGE) for index in where[::PAGE]]
    want_state = flat(states, int(state[0]))
    put = real.PoolTransfer(real.PoolName.MAMBA, host_indices=state, keys=hashes[5:6], hit_policy=TRAILING)
    made.write_storage(where, tokens, hash_value=hashes, extra_pools=[put])
    operation = made.ack_backup_queue.get(timeout=60)
    assert operation.completed_tokens == len(tokens)
    assert operation.pool_storage_result.extra_pool_hit_pages == {"mamba": 1}
    made.detach_storage_backend()
    attach_again()
    into = states.alloc(1)
    get = real.PoolTransfer(real.PoolName.MAMBA, host_indices=into, keys=hashes[-1:], hit_policy=TRAILING)
    made.prefetch(SimpleNamespace(rid="request"), tokens, extra_pools=[get])
    arrived, pages = read_back(made, None, anchor)
    assert arrived == 6 * PAGE and pages == want[:6]  # the state is that after six pages
    assert flat(states, int(into[0])) == want_state
    made.detach_storage_backend()


_RANK = """
import sys
import torch.distributed as dist
from pathlib import Path
from test_sglang_real import PAGE, HiCacheController, MLATokenToKVPool, controller, get_parallel, get_storage_hash_str, read_back
from sglang_under_test import config, fill, flat, make_pool

path, kind, mla, rank = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{path}/meeting", rank=rank, world_size=2)
pool = make_pool(kind, pages=40)
fill(pool, 1 if kind == "mla" else rank)
device = MLATokenToKVPool.__new__(MLATokenToKVPool) if kind == "mla" else object()
made = controller(HiCacheController, pool, tp_group=dist.group.WORLD, mem_pool_device=device)
extra = config(Path(path) / "kv", extra={"mla": mla}).extra_config
tokens = list(range(10 * PAGE))
hashes = get_storage_hash_str(tokens, None, page_size=PAGE)
ranks = dict(tp_size=2, pp_rank=0, pp_size=1, attn_dcp_rank=0, attn_dcp_size=1, attn_dp_enabled=False, dp_rank=None)
with get_parallel().override(tp_rank=rank, **ranks):
    made.attach_storage_backend("dynamic", PAGE, "a model", dict(extra))
    where = pool.alloc(len(tokens))
    want = [flat(pool, int(index) // PAGE) for index in where[::PAGE]]
    dist.barrier()
    made.write_storage(where, tokens, hash_value=hashes)
    made.ack_backup_queue.get(timeout=60)
    dist.barrier()
    if rank == 0:  # one rank loses the end of the prefix: then no rank may use it
        made.storage_backend._local.store.remove(made.storage_backend._pools["kv"]._keys(hashes[7:]))
    dist.barrier()
    made.prefetch("request", tokens)
    arrived, pages = read_back(made, None, pool)
    print(made.backup_skip, arrived // PAGE, pages == want[: len(pages)], flush=True)
    dist.barrier()
    made.detach_storage_backend()
"""


@pytest.mark.parametrize(
    ("kind", "mla", "skips", "stores"),
    [
        ("mha", "shared", ["False", "False"], ["tp0of2-65536", "tp1of2-65536"]),
        ("mla", "shared", ["False", "True"], ["tp0of2-73728"]),
        ("mla", "copies", ["False", "False"], ["tp0of2-73728", "tp1of2-73728"]),
    ],
)
def test_two_ranks_agree_on_the_prefix(tmp_path: Path, kind: str, mla: str, skips: list[str], stores: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", _RANK, str(tmp_path), kind, mla]
    ranks = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.PIPE, text=True) for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[0].split() for rank in ranks]
    assert said == [[skip, "7", "True"] for skip in skips]
    assert sorted(each.name for each in (tmp_path / "kv").iterdir()) == stores
