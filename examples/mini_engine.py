"""A small LLM engine with a paged KV cache, and Terrace below it: the tutorial of the Python package terrace_kv.

The engine owns the KV memory of its device. Terrace decides which request has which slots of it, and keeps blocks there, in host
memory and in storage. For each request the engine

1. asks for slots: the leading blocks of the prompt that are cached anywhere are in them when the request is ready,
2. computes the rest of the prompt, and generates tokens,
3. shares all full blocks with later requests.

Each answer is compared with one that is computed without any cache. The weights are random. PyTorch is needed, a GPU is not.
"""

import argparse
import functools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from terrace_kv import Cache, Chain, DeviceRegion, Root, Source
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
    """Serves one request at a time."""

    def __init__(self, model: Model, seed: int, device: str, directory: Path, zero: bool) -> None:
        self.model, self.zero = model, zero
        self.stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
        self.kv = torch.zeros(LAYERS, DEVICE_SLOTS, 2, BLOCK_TOKENS, HEADS, HEAD_SIZE, device=device)
        block_bytes = LAYERS * self.kv[0, 0].nbytes
        self.cache = Cache(
            {
                "rank": [{"device": "cuda:0" if device == "cuda" else "emulated"}],
                "pool": [{"block-bytes": block_bytes, "device-blocks": DEVICE_SLOTS, "host-blocks": HOST_BLOCKS}],
                "storage": {"where": f"file:{directory}", "capacity": STORAGE_CAPACITY},
            },
            # Slot b is row b of each tensor. The memory outlives the cache.
            regions=[DeviceRegion.of(self.kv[i], layer=i) for i in range(LAYERS)],
        )
        # Everything that decides the bytes of a block. Stored blocks of another model or layout are misses.
        layout = f"{LAYERS, self.kv.shape[2:], self.kv.dtype}"
        self.root = Root(model_digest=namespace("mini-engine", {"seed": seed, "zero": zero, "kv": layout}))

    def serve(self, prompt: list[int], count: int) -> tuple[Answer, list[Source]]:
        """Generates `count` tokens. Also returns, for each block that was found, where it was."""
        chain = Chain(self.root, BLOCK_TOKENS, prompt)
        with self.cache.acquire(chain, units=math.ceil((len(prompt) + count) / BLOCK_TOKENS)) as request:
            request.wait()  # until blocks of lower tiers are on the device
            found = request.hit_sources()
            slots = torch.from_numpy(request.block_table().copy()).to(self.kv.device)
            if self.zero:
                self.kv[:, [slot for slot, source in zip(slots, found) if source is not Source.DEVICE]] = 0
            kv_cache = functools.partial(self._paged_kv, slots)
            answer = self.model.generate(prompt, count, len(found) * BLOCK_TOKENS, kv_cache)
            chain.append(answer[0][:-1])  # the KV of the last token has not been computed
            computed = self.cache.signal(self.stream)  # the point at which the work on the stream is done
            request.commit(chain.keys, computed)
            request.release(computed, output_tokens=count)
        return answer, found

    def _paged_kv(self, table: Tensor, layer: int, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """A KvCache. `table` has the slot of each block of the sequence."""
        position = torch.arange(start, start + len(k), device=table.device)
        slot, offset = table[position // BLOCK_TOKENS], position % BLOCK_TOKENS
        self.kv[layer, slot, 0, offset], self.kv[layer, slot, 1, offset] = k, v
        keys, values = self.kv[layer, table].transpose(0, 1).reshape(2, -1, HEADS, HEAD_SIZE)
        return keys[: start + len(k)], values[: start + len(k)]


def main() -> int:
    parser = argparse.ArgumentParser(description="A small LLM engine over terrace_kv.Cache.")
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
                    tiers = [found.count(tier) * BLOCK_TOKENS for tier in (Source.DEVICE, Source.HOST, Source.STORAGE)]
                    columns = "".join(f"{number:11}" for number in (len(prompt), *tiers, len(prompt) - sum(tiers)))
                    print(f"{request:7}{columns}   {'as without a cache' if same else 'DIFFERENT'}")
                print(f"closing; {engine.cache.statistics()['evicted_host']} blocks were evicted from host memory")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
