"""Makes vLLM importable for a test: the installed package, or else the stand-in."""

from __future__ import annotations

import importlib.util

from stand_ins import vllm_stand_in

IS_REAL = importlib.util.find_spec("vllm") is not None
if not IS_REAL:
    vllm_stand_in.install()
