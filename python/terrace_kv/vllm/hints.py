"""What a request says about its session and its blocks.

In kv_transfer_params, which vLLM's HTTP server passes, any of these together (docs/hints.md):

    {"terrace": {"session": "ended"}}                     after this request, nobody continues its prefix
    {"terrace": {"returns_in": 12.5}}                     a request is expected to continue it so many seconds after its end
    {"terrace": {"priority": 9, "priority_for": 60}}      its chunks are evicted after those of a lower priority, for 60 seconds
    {"terrace": {"pin_for": 60}}                          its chunks stay in host memory for 60 seconds
    {"terrace": {"store": false}}                         its chunks are not stored
    {"terrace": {"tenant": "name"}}                       its chunks count for the quota of this tenant

The same as a KV hint of vLLM: an action of the type "terrace.session", whose payload is the inner object.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from reprlib import repr as short
from typing import Any, NamedTuple

from vllm.v1.kv_offload.base import ReqContext

from .._caches import HIGHEST_PRIORITY

FIELD = "terrace"
ACTION = "terrace.session"
LONGEST = 3600.0
"""The longest time of a hint that keeps chunks, in seconds."""
_LATEST = 1e9
"""The latest return, in seconds: 31 years."""
_USUAL_TIME = 600.0
_SILENT = 60.0  # seconds between two lines in the log


class Hints(NamedTuple):
    """What a request has said."""

    ended: bool = False
    """Its session has ended."""
    returns_in: float | None = None
    """Seconds after its end."""
    priority: int | None = None
    priority_for: float = _USUAL_TIME
    pin_for: float = 0.0
    store: bool = True
    tenant: int = 0
    """The number of the tenant; 0: none is named."""

    @property
    def tells_next_use(self) -> bool:
        return self.ended or self.returns_in is not None


NO_HINTS = Hints()


class WrongHint(ValueError):
    """A hint that has no meaning; the message says what would."""


def hints_of(context: ReqContext) -> Hints:
    """Returns what the request says.

    Raises:
        WrongHint: Some of it has no meaning.
    """
    params = context.kv_transfer_params
    if params is not None and not isinstance(params, Mapping):
        raise WrongHint(f"kv_transfer_params is {short(params)}, must be an object")
    given = (params or {}).get(FIELD)
    if given is None:
        envelope = getattr(context, "kv_hints", None)
        actions = () if envelope is None else envelope.actions
        given = next((action.payload for action in actions if action.action_type == ACTION), None)
    return NO_HINTS if given is None else _read(given)


class HintReader:
    """Reads the hints of requests. Clients write them, so a wrong one is a short line in the log, at most once a minute.

    Args:
        say: Takes the line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._silent_until = 0.0
        self.wrong = 0
        """Number of requests with wrong hints."""

    def read(self, context: Any, request: str) -> Hints:
        """What the request says; NO_HINTS if some of it has no meaning."""
        try:
            return hints_of(context)
        except WrongHint as wrong:
            self.wrong += 1
            if time.monotonic() >= self._silent_until:
                self._silent_until = time.monotonic() + _SILENT
                self._say(f"request {short(request)}: {wrong}; such hints are ignored ({self.wrong} so far)")
            return NO_HINTS


def tenant_number(name: str) -> int:
    """The number of a tenant in the cache."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little") or 1


def _read(given: Any) -> Hints:
    if not isinstance(given, Mapping) or not given:
        raise WrongHint(f"{FIELD} is {short(given)}, must be an object with some of {', '.join(_READERS)}")
    hints = NO_HINTS
    for name, value in given.items():
        if name not in _READERS:
            raise WrongHint(f"{FIELD} has {short(name)}; there are {', '.join(_READERS)}")
        hints = hints._replace(**_READERS[name](name, value))
    if hints.ended and hints.returns_in is not None:
        raise WrongHint(f"{FIELD} says that the session has ended, and when it returns; give one of the two")
    if "priority_for" in given and hints.priority is None:
        raise WrongHint(f"{FIELD} has priority_for without a priority")
    return hints


def _wrong(name: str, value: Any, right: str) -> WrongHint:
    return WrongHint(f"{FIELD}.{name} is {short(value)}, must be {right}")


def _session(name: str, value: Any) -> dict[str, Any]:
    if value == "ended":
        return {"ended": True}
    raise _wrong(name, value, '"ended"')


def _seconds(name: str, value: Any) -> dict[str, Any]:
    most = _LATEST if name == "returns_in" else LONGEST
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
        return {name: float(value)}
    raise _wrong(name, value, f"seconds from 0 to {most:.0f}")


def _priority(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= HIGHEST_PRIORITY:
        return {name: value}
    raise _wrong(name, value, f"a whole number from 0 to {HIGHEST_PRIORITY}")


def _store(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {name: value}
    raise _wrong(name, value, "true or false")


def _tenant(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value:
        return {name: tenant_number(value)}
    raise _wrong(name, value, "a name")


_READERS = {
    "session": _session,
    "returns_in": _seconds,
    "priority": _priority,
    "priority_for": _seconds,
    "pin_for": _seconds,
    "store": _store,
    "tenant": _tenant,
}
