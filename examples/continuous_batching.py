"""Continuous batching by terrace_kv.Step: chunked prefill, decode, preemption, and prompts that share blocks. (docs/python.md)

The KV of a token is one number, so that the model fits in a few lines. Each answer is compared with one without a cache.
"""

from collections import deque

import numpy

from terrace_kv import Busy, Cache, Chain, DeviceRegion, RequestState, Root, Step

BLOCK_TOKENS, BLOCKS, ROWS, WIDTH, CHUNK = 4, 16, 4, 16, 6  # tokens, and slots of the device
ROOT = Root(model_digest=b"a model and its weights")
kv = numpy.zeros((BLOCKS, BLOCK_TOKENS), numpy.int64)  # the memory of the device, by slot


class Sequence:
    def __init__(self, prompt: list[int], answer_tokens: int) -> None:
        self.chain = Chain(ROOT, BLOCK_TOKENS, prompt)  # knows the keys of all tokens
        self.tokens, self.wanted = list(prompt), len(prompt) + answer_tokens
        self.new: list[int] = []  # sampled since the last step
        self.request = None


def sample(of_tokens: numpy.ndarray) -> int:
    return int((of_tokens * numpy.arange(1, len(of_tokens) + 1)).sum() % 251)


def forward(sequence: Sequence, table: numpy.ndarray) -> None:
    """Computes at most CHUNK tokens, and samples one after the last token."""
    for position in range(sequence.computed, min(sequence.computed + CHUNK, len(sequence.tokens))):
        kv[table[position // BLOCK_TOKENS], position % BLOCK_TOKENS] = sequence.tokens[position] + 7
        sequence.computed = position + 1
    if sequence.computed == len(sequence.tokens) < sequence.wanted:
        sequence.new = [sample(kv[table].reshape(-1)[: len(sequence.tokens)])]
        sequence.tokens += sequence.new


def serve(cache: Cache, waiting: deque[Sequence]) -> tuple[int, int]:
    """Serves all sequences. Returns the number of preemptions, and of tokens that were found."""
    step, rows = Step(ROWS, WIDTH), list(range(ROWS))
    arriving, running, preempted, found = [], [], 0, 0

    def leave(sequence: Sequence) -> None:
        sequence.request.commit(sequence.chain.keys[: sequence.computed // BLOCK_TOKENS])
        sequence.request.release(0)  # no work that is under way uses the blocks
        rows.append(sequence.row)

    while waiting or arriving or running:
        while waiting and rows:
            try:
                waiting[0].request = cache.acquire(waiting[0].chain)
            except Busy:
                break  # until a sequence has ended
            arriving.append(waiting.popleft())
            arriving[-1].row = rows.pop()
            step.lengths[0][arriving[-1].row] = 0  # the row has no entries of this request yet
        cache.poll()
        for sequence in [each for each in arriving if each.request.info.state is not RequestState.WAITING]:
            arriving.remove(sequence)
            info = sequence.request.wait()  # raises if a load has failed: then release, and acquire again
            sequence.computed = (info.units - info.miss) * BLOCK_TOKENS  # what was found is in the slots
            found += sequence.computed
            running.append(sequence)
        at = 0
        for i, sequence in enumerate(running):
            step.requests[i], step.rows[i] = sequence.request.id, sequence.row
            step.computed[i] = sequence.computed  # the steps before have written them
            step.needed[i] = 0  # slots for all tokens of the sequence, and no lookahead
            step.token_counts[i] = len(sequence.new)  # 0 in prefill, 1 in decode
            step.tokens[at : at + len(sequence.new)] = sequence.new
            at += len(sequence.new)
            sequence.new = []
        while not cache.step(step, len(running)):  # there is no room: the last sequence gives up its blocks
            step.token_counts[:] = 0  # they are appended, also those of a request without room
            preempted += 1
            waiting.appendleft(running.pop())
            leave(waiting[0])
        cache.end_step()
        for sequence in running:
            forward(sequence, step.tables[0][sequence.row, : step.lengths[0][sequence.row]])
        for sequence in [each for each in running if each.computed == each.wanted]:
            running.remove(sequence)
            leave(sequence)
    return preempted, found


def main() -> None:
    config = {"pool": [{"block-bytes": kv[0].nbytes, "device-blocks": BLOCKS, "host-blocks": 64}], "device": {"reserve-max": 0}}
    with Cache(config, regions=[DeviceRegion.of(kv)]) as cache:
        system = list(range(10))  # all prompts begin with it
        prompts = [[*system, *range(100 * i, 100 * i + 9)] for i in range(1, 7)]
        sequences = [Sequence(prompt, 12) for prompt in prompts]
        preempted, found = serve(cache, deque(sequences))
        for prompt, sequence in zip(prompts, sequences):
            expected = list(prompt)
            while len(expected) < sequence.wanted:
                expected.append(sample(numpy.array(expected) + 7))
            assert sequence.tokens == expected
        print(f"{len(prompts)} answers are right; {preempted} preemptions; {found} tokens were not computed again")


if __name__ == "__main__":
    main()
