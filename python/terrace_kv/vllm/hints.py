"""What a request says about its session.

In kv_transfer_params, which vLLM's HTTP server passes:

    {"terrace": {"session": "ended"}}       after this request, nobody continues its prefix
    {"terrace": {"returns_in": 12.5}}       a request is expected to continue it about so many seconds after its end

The same as a KV hint of vLLM: an action of the type "terrace.session", whose payload is one of the two objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm.v1.kv_offload.base import ReqContext

FIELD = "terrace"
ACTION = "terrace.session"


class NextUse(NamedTuple):
    """When the prefix of a request is used next, after its end."""

    seconds: float | None
    """None: its session has ended."""


class WrongHint(ValueError):
    """A hint that has no meaning; the message says what would."""


def next_use(context: ReqContext) -> NextUse | None:
    """Returns what the request says; None if it says nothing.

    Raises:
        WrongHint: It says something that has no meaning.
    """
    given = (context.kv_transfer_params or {}).get(FIELD)
    if given is None:
        envelope = getattr(context, "kv_hints", None)
        actions = () if envelope is None else envelope.actions
        given = next((action.payload for action in actions if action.action_type == ACTION), None)
    return None if given is None else _read(given)


def _read(given: Any) -> NextUse:
    if isinstance(given, Mapping) and len(given) == 1:
        if given.get("session") == "ended":
            return NextUse(None)
        seconds = given.get("returns_in")
        if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds) and seconds >= 0:
            return NextUse(float(seconds))
    raise WrongHint(f'{FIELD} is {given!r}, must be {{"session": "ended"}} or {{"returns_in": seconds}}')
