"""For those who come from FastDeploy's PrefixCacheManager: match, swap in, allocate, update, release and write back, by
terrace_kv.Cache. (docs/coming-from.md)
"""

import tempfile

import numpy

from terrace_kv import Cache, Chain, DeviceRegion, Root

BLOCK, SLOTS, BLOCK_BYTES = 4, 10, 4096  # tokens, blocks of the GPU, bytes
memory = numpy.zeros((SLOTS, BLOCK_BYTES), numpy.uint8)  # stands for the GPU's memory
root = Root(model_digest=b"a model and its weights")


def serve(cache: Cache, tokens: list[int]) -> None:
    """One request of an engine."""
    chain = Chain(root, BLOCK, tokens)
    # request_match_blocks() and request_block_ids(): the longest cached prefix, blocks for all of it and for the rest, and the
    # copies from host memory and storage. The call does not wait; wait() does, or poll() in an engine's loop.
    with cache.acquire(chain) as request:
        info = request.wait()
        table = request.block_table()
        found = info.device + info.host + info.storage
        for block in range(found):
            assert (memory[table[block]] == tokens[block * BLOCK] % 251).all(), "the bytes of these tokens"
        for block in range(found, len(table)):  # prefill
            memory[table[block]] = tokens[block * BLOCK] % 251
        # update_cache_blocks() and cache_output_blocks(): from now on, others find the full blocks.
        request.commit(chain.keys)
        # release_block_ids(): blocks stay cached. free_block_ids() is not needed: the cache evicts when it needs room, to
        # host memory and from there to storage.
        request.release(0)
    cache.drain()  # write-through: until the blocks are stored; an engine goes on and polls
    print(f"prompt {tokens[0]:>4}: GPU {info.device}, CPU {info.host}, storage {info.storage}, computed {info.miss}")


with tempfile.TemporaryDirectory() as directory:
    config = {
        "loads": "always",  # by default, only what loads faster than it is computed; here nothing is computed
        "device": {"reserve-max": 0},  # by default, some blocks are kept free for bursts
        "storage": {"where": f"file:{directory}", "capacity": "1MiB"},
        "pool": [{"block-bytes": BLOCK_BYTES, "device-blocks": SLOTS, "host-blocks": 8}],
    }
    regions = [DeviceRegion(memory.ctypes.data, BLOCK_BYTES, BLOCK_BYTES)]
    prompts = [list(range(1000 * number, 1000 * number + 17)) for number in range(6)]
    with Cache(config, regions=regions) as cache:
        for number in (0, 0, 1, 2, 0, 3, 4, 5, 0, 1):
            serve(cache, prompts[number])
        # write_cache_to_storage(): everything that is cached, at the end of the process.
        print("durable blocks:", cache.checkpoint())
    with Cache(config, regions=regions) as cache:
        serve(cache, prompts[5])
