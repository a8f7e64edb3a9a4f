"""Runs a real vLLM engine on the CPU, and prints what it did as JSON. One process a run: `engine_run.py RUN` with RUN as JSON:

    {"model": DIR, "extra": kv_connector_extra_config or null, "engine": more arguments of LLM, "steps": [STEP, ...],
     "events": arguments of vLLM's KVEventsConfig, or absent}

A step is {"prompts": [[token, ...], ...], "generate": COUNT}, {"abort": [[token, ...], ...]}, {"reset": true}, {"sleep": true},
{"settle": true}, {"operator": [SOCKET, PATH, BODY]}, {"serve": PORT} or {"kill": true}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
)

from vllm import LLM, SamplingParams  # noqa: E402  (after the environment)
from vllm.config import KVEventsConfig, KVTransferConfig  # noqa: E402

from terrace_kv import OffloadCache, Store  # noqa: E402

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from admin_endpoint import ask  # noqa: E402

STORES: list[Store | OffloadCache] = []
PREEMPTED: list[str] = []
MANAGERS: list[Any] = []
CALLS: list[tuple[str, dict[int, list[int]]]] = []


def sampling(count: int = 8) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, detokenize=False, ignore_eos=True, logprobs=1)


def watch() -> None:
    """Notes each store and cache that is opened, each request that is preempted, and the chunks that vLLM asks the manager to store
    and to load, in this process."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import OffloadingConnectorScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    preempt = Scheduler._preempt_request

    def watched(opening: Any) -> Any:
        def opened(store: Any, *arguments: Any, **options: Any) -> None:
            opening(store, *arguments, **options)
            STORES.append(store)

        return opened

    def preempted(scheduler: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        PREEMPTED.append(request.request_id)
        return preempt(scheduler, request, *arguments, **options)

    make_scheduler = OffloadingConnectorScheduler.__init__

    def with_noted_calls(scheduler: Any, *arguments: Any, **options: Any) -> None:
        make_scheduler(scheduler, *arguments, **options)
        MANAGERS.append(scheduler.manager)
        tokens = {group.group_idx: group.tokens_per_chunk for group in scheduler.config.kv_group_configs}
        for name in "store", "load":
            note_calls(scheduler.manager, name, tokens)

    OffloadingConnectorScheduler.__init__ = with_noted_calls
    Store.__init__ = watched(Store.__init__)  # type: ignore[method-assign]
    OffloadCache.__init__ = watched(OffloadCache.__init__)  # type: ignore[method-assign]
    Scheduler._preempt_request = preempted


def note_calls(manager: Any, name: str, tokens: dict[int, int]) -> None:
    prepare = getattr(manager, f"prepare_{name}")

    def noted(keys: Any, context: Any) -> Any:
        chunks: dict[int, list[int]] = {}
        for key in keys:
            group = int.from_bytes(key[-4:], "big")
            chunks.setdefault(group, []).append(context.get_offload_key_position(key) // tokens[group] - 1)
        CALLS.append((name, chunks))
        return prepare(keys, context)

    setattr(manager, f"prepare_{name}", noted)


def chained_groups() -> list[int] | None:
    """The groups of layers whose chunks Terrace's manager keeps in order. None: another manager."""
    for manager in MANAGERS:
        if hasattr(manager, "_chains"):
            return sorted(int.from_bytes(group, "big") for group in manager._chains._tokens)
    return None


def generate(llm: LLM, prompts: list[list[int]], count: int = 8) -> list[dict[str, Any]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling(count), use_tqdm=False)
    return [
        {
            "tokens": list(output.outputs[0].token_ids),
            "logprobs": [next(iter(each.values())).logprob for each in output.outputs[0].logprobs],
            "cached": output.num_cached_tokens,
        }
        for output in outputs
    ]


def settle(llm: LLM) -> None:
    """Steps the engine until what was computed has been stored: a store begins in the step after its last token."""
    for i in range(6):
        generate(llm, [[3 + i, 4, 5]])
        time.sleep(0.1)


def abort(llm: LLM, prompts: list[list[int]]) -> None:
    """Adds requests, and takes them back after a step."""
    engine = llm.llm_engine
    for i, prompt in enumerate(prompts):
        engine.add_request(f"aborted-{i}", {"prompt_token_ids": prompt}, sampling())
    engine.step()
    engine.abort_request([f"aborted-{i}" for i in range(len(prompts))])
    while engine.has_unfinished_requests():
        engine.step()


def serve(llm: LLM, port: int) -> list[dict[str, Any]]:
    """Answers POST /v1/completions, with a list of tokens as prompt, one by one, until POST /stop. Returns the outputs."""
    outputs: list[dict[str, Any]] = []

    class Requests(BaseHTTPRequestHandler):
        def reply(self, body: dict[str, Any], status: int = 200) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self.reply({}, 200 if self.path == "/health" else 404)

        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
            if self.path == "/v1/completions":
                (output,) = generate(llm, [order["prompt"]], order.get("max_tokens", 1))
                outputs.append(output)
                self.reply({"object": "text_completion", "choices": [{"index": 0, "text": str(port)}], "terrace": output})
            elif self.path == "/settle":
                settle(llm)
                self.reply({})
            elif self.path == "/stop":
                self.reply({})
                server.goes_on = False
            else:
                self.reply({}, 404)

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    class Server(HTTPServer):
        goes_on = True

    with Server(("127.0.0.1", port), Requests) as server:
        print("SERVES", flush=True)
        while server.goes_on:
            server.handle_request()
    return outputs


def metrics(llm: LLM) -> dict[str, float]:
    """vLLM's metrics of offloading, by name. It has them only with disable_log_stats off."""
    if llm.llm_engine.log_stats is False:
        return {}
    return {each.name: each.value for each in llm.get_metrics() if "kv_offload" in each.name and hasattr(each, "value")}


def scheduler(llm: LLM) -> dict[str, Any]:
    """The class of the scheduler, and the counts of Terrace's cache, if it manages the GPU's memory. Of this process alone."""
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    if core is None:
        return {}
    manager = core.scheduler.kv_cache_manager
    cache = getattr(manager.coordinator, "cache", None)
    return {"scheduler": type(core.scheduler).__name__, "gpu": cache and cache.statistics()}


def result(llm: LLM, outputs: list[Any]) -> None:
    statistics = STORES[0].statistics() if STORES else None
    done = {"outputs": outputs, "statistics": statistics, "preempted": len(PREEMPTED), "metrics": metrics(llm)}
    done |= {"calls": CALLS, "chained": chained_groups(), **scheduler(llm)}
    print("RESULT " + json.dumps(done), flush=True)


def main() -> None:
    run = json.loads(sys.argv[1])
    watch()
    given: dict[str, Any] = {}
    if run.get("extra"):
        given["kv_transfer_config"] = KVTransferConfig(
            kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=run["extra"]
        )
    if "events" in run:
        given["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", **run["events"])
    llm = LLM(
        run["model"], load_format="safetensors", skip_tokenizer_init=True, enforce_eager=True, block_size=32, seed=0,
        **{"dtype": "bfloat16", "max_model_len": 1024, "max_num_seqs": 4, **run.get("engine", {}), **given},
    )  # fmt: skip
    outputs: list[list[dict[str, Any]]] = []
    for step in run["steps"]:
        if "prompts" in step:
            outputs.append(generate(llm, step["prompts"], step.get("generate", 8)))
        elif "abort" in step:
            abort(llm, step["abort"])
        elif "reset" in step:
            assert llm.reset_prefix_cache(), "the prefix cache was not reset"
        elif "sleep" in step:
            llm.sleep(level=1)
            llm.wake_up()
        elif "settle" in step:
            settle(llm)
        elif "operator" in step:
            socket, path, body = step["operator"]
            status, answer = ask(Path(socket), "POST", path, body)
            assert status in (200, 202), answer
        elif "serve" in step:
            outputs.append(serve(llm, step["serve"]))
        elif "kill" in step:
            result(llm, outputs)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            raise ValueError(f"unknown step {step}")
    result(llm, outputs)
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
