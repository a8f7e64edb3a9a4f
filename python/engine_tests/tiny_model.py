"""A small Llama with random weights, written by the test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HIDDEN = 128
LAYERS = 2
HEADS = 2
HEAD = 64
FEED_FORWARD = 256
VOCABULARY = 512


def write(directory: Path, seed: int = 0, window: int = 0) -> Path:
    """Writes config.json and model.safetensors. With a window, the last layer attends to so many tokens only, and vLLM has two
    groups of layers. The weights have ordinary sizes, about 1.5 / sqrt(inputs): with smaller ones the
    output hardly depends on the KV cache, and a comparison of outputs would prove nothing."""
    directory.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "intermediate_size": FEED_FORWARD,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if window:
        config["layer_types"] = ["full_attention"] * (LAYERS - 1) + ["sliding_attention"]
        config["sliding_window"] = window
    (directory / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(seed)

    def matrix(outputs: int, inputs: int) -> np.ndarray:
        return (random.standard_normal((outputs, inputs)) * 1.5 / np.sqrt(inputs)).astype(np.float32)

    tensors = {"model.embed_tokens.weight": random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name in "qkvo":
            tensors[f"{layer}self_attn.{name}_proj.weight"] = matrix(HIDDEN, HIDDEN)
        tensors[layer + "mlp.gate_proj.weight"] = matrix(FEED_FORWARD, HIDDEN)
        tensors[layer + "mlp.up_proj.weight"] = matrix(FEED_FORWARD, HIDDEN)
        tensors[layer + "mlp.down_proj.weight"] = matrix(HIDDEN, FEED_FORWARD)
        tensors[layer + "input_layernorm.weight"] = np.ones(HIDDEN, np.float32)
        tensors[layer + "post_attention_layernorm.weight"] = np.ones(HIDDEN, np.float32)
    tensors["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    tensors["lm_head.weight"] = matrix(VOCABULARY, HIDDEN)
    _write_safetensors(directory / "model.safetensors", tensors)
    return directory


def write_tokenizer(directory: Path) -> Path:
    """Adds a tokenizer to the model, which an HTTP server needs: the words "t0", "t1" and so on."""
    words = {f"t{i}": i for i in range(VOCABULARY)}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
                 "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"}}  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0"})
    )
    return directory


def _write_safetensors(file: Path, tensors: dict[str, np.ndarray]) -> None:
    header: dict[str, object] = {}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensor.tobytes() for tensor in tensors.values()))
