"""A router that reads events sends a prompt that it has never seen to the engine whose host memory or disk has it. Without events
it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from router import PATIENCE, Router, complete, free_port, post

zmq = pytest.importorskip("zmq")

from terrace_kv import EventPublisher, OffloadCache, TerraceError  # noqa: E402

BLOCK = 4096
TOKENS = 16
HOLDERS = [0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1]  # by prompt: the engine that has it; no order that a router could hit by chance


def prompt(number: int, blocks: int = 4) -> list[int]:
    return [1000 * number + i for i in range(blocks * TOKENS)]


class Embedder:
    """An engine without a model: an OffloadCache, its publisher, and a server that answers with the engine's number."""

    def __init__(self, number: int, path: Path) -> None:
        self._cache = OffloadCache(
            {
                "key-order": "prefix",
                "write-policy": "write-through",
                "storage": {"where": f"file:{path}", "capacity": "16MiB"},
                "pool": [{"block-bytes": BLOCK, "device-blocks": 1, "host-blocks": 64}],
            }
        )
        self._cache.record_changes()
        # Few batches are kept, so that a router that comes late needs the present state.
        self.publisher = EventPublisher("tcp://127.0.0.1:0", replay_endpoint="tcp://127.0.0.1:0", buffer_steps=4, heartbeat=0.2)
        self._job = 0

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({} if self.path == "/health" else None)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.answer({"choices": [{"index": 0, "text": str(number)}]} if self.path == "/v1/completions" else None)

            def answer(self, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(404 if body is None else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def hold(self, tokens: Sequence[int]) -> None:
        """Stores the prompt in host memory and on disk."""
        keys = self._cache.token_keys(tokens, TOKENS)
        self.publisher.describe(keys, tokens, TOKENS)
        self._job += 1
        self._cache.store(self._job, keys, memory=[bytes(BLOCK)] * len(keys))
        self._cache.drain(PATIENCE)
        job = self._cache.start_write_back()
        while self._cache.write_back(job).state == 0:
            self._cache.poll()
        self._cache.poll()
        self.publisher.publish(self._cache.changes())

    def places(self, tokens: Sequence[int]) -> set[str]:
        return {state.name for state in self._cache.look_up(self._cache.token_keys(tokens, TOKENS))}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.publisher.close()
        self._cache.close()


@pytest.fixture
def embedders(tmp_path: Path) -> Iterator[list[Embedder]]:
    try:
        made = [Embedder(number, tmp_path / str(number)) for number in range(2)]
    except TerraceError as error:
        pytest.skip(str(error))
    yield made
    for each in made:
        each.close()


def chosen(router: Router, tokens: Sequence[int]) -> int:
    return int(complete(router.url, tokens)["choices"][0]["text"])


def wait_until_it_knows(router: Router, embedders: Sequence[Embedder], first: int) -> None:
    """Returns once the router knows the engines: it has sent several prompts that were never routed before to their holders. The
    prompts have numbers from `first` on."""
    end = time.monotonic() + PATIENCE
    right = 0
    while right < 6:
        holder = right % 2
        embedders[holder].hold(prompt(first, 1))
        time.sleep(0.05)
        right = right + 1 if chosen(router, prompt(first, 1)) == holder else 0
        first += 1
        assert time.monotonic() < end, "the router does not learn"


@pytest.mark.parametrize("place", ["HOST", "STORAGE"])
def test_a_prompt_goes_to_the_cache_that_has_it(place: str, embedders: list[Embedder], tmp_path: Path) -> None:
    for number, holder in enumerate(HOLDERS):
        embedders[holder].hold(prompt(number))
    if place == "STORAGE":
        for each in embedders:
            for number in range(100, 140):
                each.hold(prompt(number))  # both have them: no reason to prefer one
    for number, holder in enumerate(HOLDERS):
        assert embedders[holder].places(prompt(number)) == {place}
        assert embedders[1 - holder].places(prompt(number)) == {"MISS"}
    urls = [each.url for each in embedders]
    events = {each.url: (each.publisher.endpoint, each.publisher.replay_endpoint) for each in embedders}
    with Router(urls, {}, TOKENS, tmp_path / "blind.log") as blind:
        assert [chosen(blind, prompt(number)) for number in range(len(HOLDERS))] != HOLDERS
    with Router(urls, events, TOKENS, tmp_path / "router.log") as router:
        wait_until_it_knows(router, embedders, 1000)
        assert [chosen(router, prompt(number)) for number in range(len(HOLDERS))] == HOLDERS
    for each in embedders:
        assert each.publisher.statistics()["snapshots"] > 0, "the router came late"


# ---- vLLM's engine, whose own publisher gets what Terrace's manager tells

CHUNK = 32
PROMPTS = [[(i * step) % 500 + 3 for i in range(200)] for step in (7, 29)]
OTHERS = [[(i * step) % 500 + 3 for i in range(180)] for step in (11, 13, 17, 19, 23, 31, 37)]


class VllmEngine:
    """A process of engine_run.py that serves, and the state that its events give."""

    def __init__(self, model: Path, path: Path, host_bytes: int) -> None:
        port, live, replay = (free_port() for _ in range(3))
        self.url = f"http://127.0.0.1:{port}"
        self.events = (f"tcp://127.0.0.1:{live}", f"tcp://127.0.0.1:{replay}")
        order = {
            "model": str(model),
            "extra": {
                "spec_name": "CpuTerraceSpec",
                "spec_module_path": "cpu_worker",
                "cpu_bytes_to_use": host_bytes,
                "self_describing_kv_events": True,
                "terrace": {"path": str(path), "capacity": "64MiB"},
            },
            "engine": {"num_gpu_blocks_override": 26, "max_model_len": 512},
            "events": {"endpoint": f"tcp://*:{live}", "replay_endpoint": f"tcp://*:{replay}"},
            "steps": [{"serve": port}],
        }
        here = Path(__file__).parent
        self._log = path.with_suffix(".log")
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(here / "engine_run.py"), json.dumps(order)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def start(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("SERVES"):
                return
        pytest.fail(f"the engine does not serve: {self._log.read_text()[-4000:]}")

    def media(self, events: Any, tokens: Sequence[int]) -> set[str]:
        """The media that have all full chunks of the prompt, according to all events so far."""
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        socket.connect(self.events[1])
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        decode = events.decoder(events.types.KVEventBatch).decode
        copies: dict[tuple[str, Any], list[int]] = {}
        while (frames := socket.recv_multipart())[2] != (-1).to_bytes(8, "big", signed=True):
            for event in decode(frames[3]).events:
                if isinstance(event, events.types.BlockStored):
                    assert event.block_size == CHUNK and len(event.token_ids) == CHUNK * len(event.block_hashes), event
                    for i, name in enumerate(event.block_hashes):
                        copies[event.medium, name] = list(event.token_ids[CHUNK * i : CHUNK * (i + 1)])
                elif isinstance(event, events.types.BlockRemoved):
                    for name in event.block_hashes:
                        copies.pop((event.medium, name), None)
                else:
                    copies.clear()
        context.destroy(linger=0)
        chunks = [list(tokens[at : at + CHUNK]) for at in range(0, len(tokens) // CHUNK * CHUNK, CHUNK)]
        there = {medium: [its for (of, _), its in copies.items() if of == medium] for medium in ("GPU", "CPU", "STORAGE")}
        return {medium for medium, its in there.items() if all(chunk in its for chunk in chunks)}

    def stop(self) -> None:
        if self._process.poll() is None:
            try:
                post(self.url + "/stop", {})
                self._process.communicate(timeout=PATIENCE)
            finally:
                self._process.kill()


class VllmEvents:
    """vLLM's own types and decoder of events."""

    def __init__(self) -> None:
        self.types = pytest.importorskip("vllm.distributed.kv_events", reason="vLLM is not installed (tools/engines)")
        self.decoder = pytest.importorskip("msgspec").msgpack.Decoder


@pytest.mark.parametrize(("medium", "host_bytes"), [("CPU", 8 << 20), ("STORAGE", 256 << 10)])
def test_a_prompt_goes_to_the_vllm_engine_that_has_it(medium: str, host_bytes: int, tmp_path: Path) -> None:
    events = VllmEvents()
    import tiny_model

    model = tiny_model.write(tmp_path / "model")
    engines = [VllmEngine(model, tmp_path / f"engine-{number}", host_bytes) for number in range(2)]
    try:
        for engine in engines:
            engine.start()
        for engine, tokens in zip(engines, PROMPTS):
            complete(engine.url, tokens)  # not through the router
            post(engine.url + "/settle", {})
            for other in OTHERS:  # which push the prompt out of the GPU, and out of a small host memory
                complete(engine.url, other)
            post(engine.url + "/settle", {})
        for number, engine in enumerate(engines):
            kept = engine.media(events, PROMPTS[number])
            assert "GPU" not in kept and medium in kept and (medium == "CPU" or "CPU" not in kept), kept
            assert engine.media(events, PROMPTS[1 - number]) == set()
        urls = [engine.url for engine in engines]
        with Router(urls, {engine.url: engine.events for engine in engines}, CHUNK, tmp_path / "router.log") as router:
            for attempt in range(100):  # vLLM's publisher is silent until the next event, and the router with it
                canaries = [[500 - number, *range(attempt, attempt + CHUNK)] for number in range(2)]
                for engine, canary in zip(engines, canaries):
                    complete(engine.url, canary)
                    post(engine.url + "/settle", {})
                if [router_choice(router, canary) for canary in canaries] == urls:
                    break
            answers = [complete(router.url, tokens) for tokens in PROMPTS]
        assert [f"http://127.0.0.1:{each['choices'][0]['text']}" for each in answers] == urls
        assert [each["terrace"]["cached"] for each in answers] == [192, 192], "loaded, not computed"
    finally:
        for engine in engines:
            engine.stop()


def router_choice(router: Router, tokens: Sequence[int]) -> str:
    return f"http://127.0.0.1:{complete(router.url, tokens)['choices'][0]['text']}"
