"""vLLM over HTTP without a GPU: a server is stopped and started again, and finds a prompt of its first start on the disk.

    tools/engines --run examples/try_vllm.py

The model is a small Llama with random weights. vLLM's own workers refuse a CPU, so those of the tests copy (cpu_worker.py).
With --stay the second server runs until Enter is pressed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import tiny_model
from http_server import Server, serving

# Larger than the model of the tests, so that computing takes longer than loading.
tiny_model.LAYERS, tiny_model.HIDDEN, tiny_model.HEADS, tiny_model.FEED_FORWARD = 8, 512, 8, 2048
PROMPT = [i * i % 500 + 3 for i in range(1500)]


def ask(server: Server) -> None:
    server.complete(PROMPT[200:300])  # the first request of a server takes longer than others
    begin = time.perf_counter()
    cached = server.complete(PROMPT)
    seconds = time.perf_counter() - begin
    read = int(server.metric("read_chunks"))
    print(f"first token after {seconds:.2f} s; {cached} of {len(PROMPT)} tokens cached; chunks from disk: {read}", flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--stay", action="store_true")
stay = parser.parse_args().stay
with tempfile.TemporaryDirectory(prefix="try-vllm-") as name:
    directory = Path(name)
    model = tiny_model.write_tokenizer(tiny_model.write(directory / "model"))
    extra = {
        "spec_name": "CpuTerraceSpec",
        "spec_module_path": "cpu_worker",
        "cpu_bytes_to_use": 256 << 20,
        "terrace": {"path": str(directory / "kv"), "capacity": "1GiB", "config": {"admin": {"listen": "unix:"}}},
    }
    for start in ("first start", "second start"):
        print(start, flush=True)
        log = directory / "server.log"
        with serving(model, extra, log, block_size=32, max_model_len=2048, shutdown_timeout=60) as server:
            ask(server)
            if stay and start == "second start":
                print(f"{server.command}\nruns until Enter is pressed; its log is {log}", flush=True)
                sys.stdin.readline()
