"""Which blocks of sliding windows stay in GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any


class Boundaries:
    """The places at which a later request may continue a prompt. A hit that ends there needs the blocks of windows before it.

    If all blocks of windows were shared, most of the memory would have blocks that no hit needs. So blocks that a window has left
    behind are shared only before these places:

    - the last hit that the same prompt can have when it comes again, which leaves a token to compute;
    - the end of the prompt, for its continuation;
    - the place up to which another prompt had the same blocks, such as the end of a system prompt.

    Threads: vLLM's scheduler.

    Args:
        unit: Tokens of a hash unit.
        ratio: vLLM's hashes of a hash unit.
        alignment: Tokens. A hit is a multiple of it.
        units_max: Units whose names are remembered; at most twice as many.
        dropped: Tokens by which a hit is shortened, for a draft model.
    """

    def __init__(self, unit: int, ratio: int, alignment: int, units_max: int, dropped: int) -> None:
        self._unit, self._ratio, self._alignment, self._dropped = unit, ratio, alignment, dropped
        self._units_max = units_max
        self._seen: dict[bytes, None] = {}  # hashes of the units of recent requests

    def of(self, request: Any) -> list[int]:
        """The places in tokens, in ascending order."""
        prompt = request.num_prompt_tokens
        places = {self._aligned(prompt - 1), self._aligned(prompt), self._aligned(self._known(request.block_hashes))}
        if self._dropped:
            places |= {place - self._dropped for place in places}
        return sorted(place for place in places if place > 0)

    def note(self, hashes: Sequence[bytes], begin: int, end: int) -> None:
        """The units from `begin` to `end` are shared."""
        for unit in range(begin, end):
            self._seen[hashes[(unit + 1) * self._ratio - 1]] = None
        if len(self._seen) > 2 * self._units_max:
            for old in list(islice(self._seen, self._units_max)):
                del self._seen[old]

    def _known(self, hashes: Sequence[bytes]) -> int:
        """Leading tokens that another request has had. A hash names all blocks before it, too, so a few look-ups find the end."""
        low, high = 0, len(hashes) // self._ratio
        while low < high:
            middle = (low + high + 1) // 2
            if hashes[middle * self._ratio - 1] in self._seen:
                low = middle
            else:
                high = middle - 1
        return low * self._unit

    def _aligned(self, tokens: int) -> int:
        return tokens - tokens % self._alignment
