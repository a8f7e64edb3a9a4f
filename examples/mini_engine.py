"""A small LLM engine with a paged KV cache, and Terrace below it: the tutorial of the Python package terrace_kv.

The engine owns the KV memory of its device. Terrace keeps blocks in host memory and in storage. For each request the engine

1. finds the leading blocks that are in its own slots (hits on the device),
2. asks Terrace for the blocks after them, and loads these into free slots (hits in host memory and storage),
3. computes the rest of the prompt, generates tokens, and stores all full blocks.

Each answer is compared with one that is computed without any cache. The weights are random. PyTorch is needed, a GPU is not.
"""

import argparse
import contextlib
import functools
import itertools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from terrace_kv import Busy, DeviceRegion, JobEvent, JobEventKind, Keys, OffloadCache
from terrace_kv.identity import namespace

VOCABULARY, LAYERS, HEADS, HEAD_SIZE, HIDDEN, BLOCK_TOKENS = 512, 2, 4, 32, 4 * 32, 16
# The tiers are small, so that a few requests fill them. Each request of this program needs 7 blocks.
DEVICE_SLOTS, HOST_BLOCKS, STORAGE_CAPACITY = 12, 20, "4MiB"

# Takes a layer, the position of the first new token, and keys and values of new tokens. Returns those of the whole sequence.
KvCache = Callable[[int, int, Tensor, Tensor], tuple[Tensor, Tensor]]
Answer = tuple[list[int], Tensor]  # the generated tokens, and for each of them the log-probabilities of the whole vocabulary


class Model:
    """A decoder-only transformer. Its weights are random, and large enough that wrong KV changes the answer."""

    def __init__(self, seed: int, device: str) -> None:
        random = torch.Generator().manual_seed(seed)

        def weights(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=random) * 1.5 / math.sqrt(rows)).to(device)

        shapes = ((HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN))
        self.layers = [[weights(*shape) for shape in shapes] for _ in range(LAYERS)]
        self.tokens, self.positions = weights(VOCABULARY, HIDDEN), weights(DEVICE_SLOTS * BLOCK_TOKENS, HIDDEN)
        self.head = weights(HIDDEN, VOCABULARY)

    def forward(self, tokens: list[int], start: int, kv_cache: KvCache) -> Tensor:
        """Returns the log-probabilities of the next token. The first of `tokens` has the position `start` in its sequence."""
        position = torch.arange(start, start + len(tokens), device=self.head.device)
        x = self.tokens[tokens] + self.positions[position]
        for layer, (qkv, out, up, down) in enumerate(self.layers):
            q, k, v = (functional.rms_norm(x, (HIDDEN,)) @ qkv).view(-1, 3, HEADS, HEAD_SIZE).unbind(1)
            keys, values = kv_cache(layer, start, k, v)
            mask = torch.arange(len(keys), device=position.device) <= position[:, None]
            q, keys, values = q.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1)
            attended = functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + attended.transpose(0, 1).reshape(-1, HIDDEN) @ out
            x = x + functional.gelu(functional.rms_norm(x, (HIDDEN,)) @ up) @ down
        return functional.log_softmax(functional.rms_norm(x[-1], (HIDDEN,)) @ self.head, dim=-1)

    def generate(self, prompt: list[int], count: int, cached: int = 0, kv_cache: KvCache | None = None) -> Answer:
        """Generates tokens. `kv_cache` has the KV of the first `cached` tokens. Without it, each step computes everything."""
        sequence, rows = list(prompt), []
        for _ in range(count):
            rows.append(self.forward(sequence[cached:], cached, kv_cache or (lambda _layer, _start, k, v: (k, v))))
            cached = len(sequence) if kv_cache else 0
            sequence.append(int(rows[-1].argmax()))
        return sequence[len(prompt) :], torch.stack(rows)


class Engine:
    """Serves one request at a time. The blocks of a request stay in their slots after its end, until the slots are needed."""

    def __init__(self, model: Model, seed: int, device: str, directory: Path, zero: bool) -> None:
        self.model, self.zero = model, zero
        self.stream = torch.cuda.current_stream() if device == "cuda" else None
        self.kv = torch.zeros(LAYERS, DEVICE_SLOTS, 2, BLOCK_TOKENS, HEADS, HEAD_SIZE, device=device)
        part = self.kv[0, 0].nbytes  # keys and values of one layer in one block
        self.cache = OffloadCache(
            {
                "rank": [{"device": "cuda:0" if device == "cuda" else "emulated"}],
                "pool": [{"block-bytes": LAYERS * part, "device-blocks": DEVICE_SLOTS, "host-blocks": HOST_BLOCKS}],
                "storage": {"where": f"file:{directory}", "capacity": STORAGE_CAPACITY},
            },
            # The part of block b in layer i begins at kv[i].data_ptr() + b * stride. The memory outlives the cache.
            regions=[DeviceRegion(base=self.kv[i].data_ptr(), stride=part, bytes=part, layer=i) for i in range(LAYERS)],
            # Everything that decides the bytes of a block. Stored blocks of another model or layout are misses.
            namespace=namespace("mini-engine", {"seed": seed, "zero": zero, "kv": f"{LAYERS, self.kv.shape[2:], self.kv.dtype}"}),
        )
        self.jobs, self.free = itertools.count(), list(range(DEVICE_SLOTS))
        # The slots of finished blocks that no request uses, by key. The block that was used least recently comes first.
        self.prefix_table: dict[bytes, int] = {}

    def serve(self, prompt: list[int], count: int) -> tuple[Answer, list[str]]:
        """Generates `count` tokens. Also returns, for each block that was found, where it was."""
        blocks = math.ceil((len(prompt) + count) / BLOCK_TOKENS)
        if not prompt or blocks > DEVICE_SLOTS:
            raise ValueError(f"the prompt has {len(prompt)} tokens, must have 1 to {DEVICE_SLOTS * BLOCK_TOKENS - count}")
        # The last token of a prompt is always computed, because its log-probabilities are needed.
        keys = self.cache.token_keys(prompt[:-1], BLOCK_TOKENS)
        on_device = list(itertools.takewhile(self.prefix_table.__contains__, keys))
        # While a request uses a block, it is not in the table, so that nothing evicts it.
        slots = [self.prefix_table.pop(key) for key in on_device]
        while len(self.free) < blocks - len(slots):  # evict a block; Terrace has had a copy since its request ended
            self.free.append(self.prefix_table.pop(next(iter(self.prefix_table))))
        slots += [self.free.pop() for _ in range(blocks - len(slots))]
        found = ["device"] * len(on_device) + self._load(keys, slots, len(on_device))
        kv_cache = functools.partial(self._paged_kv, torch.tensor(slots, device=self.kv.device))
        answer = self.model.generate(prompt, count, len(found) * BLOCK_TOKENS, kv_cache)
        self._store(prompt + answer[0][:-1], slots)  # the KV of the last token has not been computed
        return answer, found

    def _paged_kv(self, table: Tensor, layer: int, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """A KvCache. `table` has the slot of each block of the sequence."""
        position = torch.arange(start, start + len(k), device=table.device)
        slot, offset = table[position // BLOCK_TOKENS], position % BLOCK_TOKENS
        self.kv[layer, slot, 0, offset], self.kv[layer, slot, 1, offset] = k, v
        keys, values = self.kv[layer, table].transpose(0, 1).reshape(2, -1, HEADS, HEAD_SIZE)
        return keys[: start + len(k)], values[: start + len(k)]

    def _load(self, keys: Keys, slots: list[int], first: int) -> list[str]:
        """Loads the blocks from index `first` on, up to the first miss. Returns where they were."""
        if (leading := self.cache.leading(keys)) <= first:
            return []
        results = sorted(self._run(self.cache.load, keys[:leading], slots[first:leading]), key=lambda event: event.block)
        if self.zero:
            self.kv[:, slots[first:leading]] = 0
        # Each block has its own result. A block that was lost in the meantime is a miss, and the blocks after it are computed.
        return [event.source.name.lower() for event in itertools.takewhile(lambda event: event.status == 0, results)]

    def _store(self, tokens: list[int], slots: list[int]) -> None:
        """Stores the full blocks of a request, and enters them in the prefix table. Terrace does not copy what it has."""
        keys = self.cache.token_keys(tokens, BLOCK_TOKENS)
        self._run(self.cache.store, keys, slots[: len(keys)], gpu_waits=True)
        # A block is useless without those before it. So the last block is entered first, and is evicted first.
        for key, slot in reversed(list(zip(keys, slots))):
            if key in self.prefix_table:  # the last block of a prompt was computed again
                self.free.append(self.prefix_table.pop(key))
            self.prefix_table[key] = slot
        self.free += slots[len(keys) :]

    def _run(self, order: Callable[..., None], keys: Keys, slots: list[int], gpu_waits: bool = False) -> list[JobEvent]:
        """Orders a job for the last len(slots) keys, waits for its end, and returns the results of its blocks. Its copies begin
        after the work that is on the GPU's stream now. With `gpu_waits`, later work of the stream waits, and not this thread."""
        job, after = next(self.jobs), 0 if self.stream is None else self.cache.signal(self.stream.cuda_stream)
        events: list[JobEvent] = []
        is_ordered = False
        while not events or events[-1].kind is not JobEventKind.ENDED:
            with contextlib.suppress(Busy):  # an earlier job has a slot until its results come, or copies are not on the GPU yet
                if not is_ordered:
                    order(job, keys, slots=slots, first=len(keys) - len(slots), after=after)
                    is_ordered = True
                if gpu_waits and self.stream is not None:
                    self.cache.await_stream(job, self.stream.cuda_stream)
                    return []
            self.cache.wait(timeout=1)
            events += [event for event in self.cache.poll() if event.job == job]
        return events[:-1]


def main() -> int:
    parser = argparse.ArgumentParser(description="A small LLM engine over terrace_kv.OffloadCache.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--path", type=Path, help="directory for storage; a later run finds its blocks; default: a temporary one")
    parser.add_argument("--seed", type=int, default=1, help="of the weights; blocks of other weights are no hits")
    parser.add_argument("--zero", action="store_true", help="fill loaded blocks with zeros; the answers must be wrong then")
    given = parser.parse_args()

    torch.set_num_threads(1)  # the model is so small that threads would only wait for each other
    model = Model(given.seed, given.device)
    random = torch.Generator().manual_seed(0)
    documents = {name: torch.randint(VOCABULARY, (96,), generator=random).tolist() for name in "ABCDE"}
    wrong = 0
    print("request     prompt =   device +     host +  storage + computed   tokens and log-probabilities are")
    with tempfile.TemporaryDirectory() as temporary:
        # Request A1 is question 1 about document A. The cache is closed after the first list, and opened again for the second.
        for requests in (("A1", "A2", "B1", "A3", "C1", "A4", "D1", "E1", "B2"), ("A5", "A6", "B3")):
            engine = Engine(model, given.seed, given.device, given.path or Path(temporary), given.zero)
            with engine.cache:
                for request in requests:
                    prompt = documents[request[0]] + [int(request[1])] * 5
                    (tokens, rows), found = engine.serve(prompt, 8)
                    expected_tokens, expected_rows = model.generate(prompt, 8)
                    same = tokens == expected_tokens and torch.allclose(rows, expected_rows, atol=1e-3)
                    wrong += not same
                    tiers = [found.count(tier) * BLOCK_TOKENS for tier in ("device", "host", "storage")]
                    columns = "".join(f"{number:11}" for number in (len(prompt), *tiers, len(prompt) - sum(tiers)))
                    print(f"{request:7}{columns}   {'as without a cache' if same else 'DIFFERENT'}")
                print(f"closing; {engine.cache.statistics()['evicted_host']} blocks were evicted from host memory")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
