"""For those who come from EasyDeL's PagePool: pages by id, a null page, and a group with a sliding window, by terrace_kv.Cache.

Page 0 is the null page. It stands in page tables for pages that a group does not need any more. (docs/coming-from.md)
"""

from terrace_kv import Cache, Chain, Root, Step

PAGE = 4  # tokens
config = {
    "pool": [{"block-bytes": 4096, "device-blocks": 17, "null-block": True}],  # num_pages=17, the null page included
    "group": [
        {"pool": 0, "block-tokens": PAGE},
        {"pool": 0, "block-tokens": PAGE, "kind": "sliding-window", "span-tokens": PAGE},
    ],
}
root = Root(model_digest=b"a model and its weights")


def usage(cache: Cache) -> float:
    """get_usage(): the share of the pages that requests hold."""
    now = cache.statistics()
    return 1 - (now["device_free"] + now["device_evictable"]) / now["device_blocks"]


with Cache(config) as pool:
    prompt = Chain(root, PAGE, range(14))
    print("get_cached_page:", pool.match(prompt).total, "units are cached")

    # get_new_pages(): all pages that the prompt needs, in every group, or none.
    request = pool.acquire(prompt)
    print("pages of both groups:", request.block_table(0).tolist(), request.block_table(1).tolist())
    print(f"usage: {usage(pool):.2f}")

    # cache_full_pages() and remove_skipped_pages(): one call for all running requests of a step.
    step = Step(rows=1, table_width=8, groups=(0, 1))
    step.requests[0], step.computed[0], step.needed[0] = request.id, 14, 18
    pool.step(step, 1, advance=True)
    print("after the prompt:", *(step.tables[group][0, : step.lengths[group][0]].tolist() for group in (0, 1)))

    # touch(): another request with the same prefix gets the same pages. It computes at least its last token.
    other = pool.acquire(Chain(root, PAGE, range(14)))
    shared = [page for page in other.block_table(0).tolist() if page in request.block_table(0).tolist()]
    print("shared pages:", shared, "hits:", len(other.hit_sources()))

    # free_pages(): the pages stay cached, and the last page of a prefix goes first when others need room.
    for each in (request, other):
        each.release(0)
    print(f"usage: {usage(pool):.2f}, cached units: {pool.match(prompt).total}")

    # reset_prefix_cache(): only if no request holds a page.
    pool.reset()
    print("after a reset:", pool.match(prompt).total)
