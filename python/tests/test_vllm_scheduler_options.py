"""What TerraceScheduler takes and refuses, with vLLM's own managers and connectors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm_modules import IS_REAL

if not IS_REAL:
    pytest.skip("vLLM is not installed; tools/check --engines installs it", allow_module_level=True)

import torch  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector  # noqa: E402
from vllm.utils.import_utils import resolve_obj_by_qualname  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, MambaSpec  # noqa: E402
from vllm_requests import BLOCK, full, own_manager, sliding  # noqa: E402

import terrace_kv.vllm  # noqa: E402
from terrace_kv.vllm import scheduler as scheduler_module  # noqa: E402


class Binds(OffloadingConnector):
    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        pass


PARALLEL = {"decode_context_parallel_size": 1, "prefill_context_parallel_size": 1}


def objections(own: KVCacheManager, connector: Any = None, **parallel: int) -> list[str]:
    config = SimpleNamespace(parallel_config=SimpleNamespace(**{**PARALLEL, **parallel}))
    return list(scheduler_module.objections(SimpleNamespace(vllm_config=config, connector=connector), own))


def made(kind: type) -> Any:
    return kind.__new__(kind)


def test_what_is_taken() -> None:
    assert objections(own_manager(10, full(), sliding(40))) == []
    assert objections(own_manager(10), made(OffloadingConnector)) == []


def chunked() -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32, attention_chunk_size=32)


def mamba() -> MambaSpec:
    return MambaSpec(block_size=BLOCK, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align")


@pytest.mark.parametrize(
    "options, says",
    [
        ({"decode_context_parallel_size": 2}, "decode_context_parallel_size is 2, must be 1"),
        ({"prefill_context_parallel_size": 2}, "prefill_context_parallel_size is 2, must be 1"),
        ({"metrics": True}, "kv_cache_metrics is on, must be off"),
        ({"specs": (full(), chunked())}, "KV cache group 1 is ChunkedLocalAttentionSpec, for vLLM's Chunked"),
        ({"specs": (full(), mamba())}, "KV cache group 1 is MambaSpec, for vLLM's MambaManager; only full attention"),
        ({"specs": ()}, "the model has no KV cache"),
        ({"connector": Binds}, "kv_connector Binds works on vLLM's own block pool"),
    ],
)
def test_what_is_refused(options: dict[str, Any], says: str) -> None:
    own = own_manager(10, *options.get("specs", ()))
    if options.get("specs") == ():
        own.coordinator.single_type_managers = ()
    if options.get("metrics"):
        own.metrics_collector = object()
    connector = made(options["connector"]) if "connector" in options else None
    sizes = {name: value for name, value in options.items() if name in PARALLEL}
    (objection,) = objections(own, connector, **sizes)
    assert objection.startswith(says)


def test_hits_within_a_block_are_refused() -> None:
    own = own_manager(10, full(2 * BLOCK), sliding(40, 2 * BLOCK))
    own.coordinator.enable_partial_hash_hits = True
    assert [each.split(" is ")[0] for each in objections(own)] == ["prefix_match_unit"]


def test_connectors_within_another() -> None:
    several = made(MultiConnector)
    several._connectors = [made(OffloadingConnector)]
    assert objections(own_manager(10), several) == []
    several._connectors.append(made(Binds))
    assert len(objections(own_manager(10), several)) == 1


def test_options() -> None:
    config = SimpleNamespace(additional_config={"terrace": {"policy": "lru"}, "other": 1})
    assert scheduler_module.terrace_options(config) == {"policy": "lru"}
    assert scheduler_module.terrace_options(SimpleNamespace(additional_config={})) == {}
    for name in ("storage", "hash-unit", "request-units-max"):
        config.additional_config["terrace"] = {name: 8}
        with pytest.raises(ValueError, match=f"{name} in additional_config"):
            scheduler_module.terrace_options(config)


def test_the_name_of_the_scheduler() -> None:
    assert resolve_obj_by_qualname("terrace_kv.vllm.TerraceScheduler") is scheduler_module.TerraceScheduler
    with pytest.raises(AttributeError):
        terrace_kv.vllm.Unknown  # noqa: B018
