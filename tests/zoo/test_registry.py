"""The registry, its cards and the package say the same, and counts follow from the published configs."""

import re
from pathlib import Path

import pytest

from shardes import zoo
from shardes.zoo.architectures import ARCHITECTURES, architecture_of
from shardes.zoo.fields import Fields
from shardes.zoo.registry import MODELS

ZOO = Path(__file__).parents[2] / "zoo"


def config(model_type: str, class_name: str, *sizes: int, tied: bool, vocabulary: int, **more: object) -> dict:
    width, inner, layers, heads, kv_heads = sizes
    return {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": tied,
        "vocab_size": vocabulary,
        **more,
    }


def qwen2(*sizes: int, tied: bool, vocabulary: int) -> dict:
    return config("qwen2", "Qwen2ForCausalLM", *sizes, tied=tied, vocabulary=vocabulary)


def llama(*sizes: int) -> dict:
    return config("llama", "LlamaForCausalLM", *sizes, tied=True, vocabulary=49152)


def qwen3(*sizes: int, tied: bool) -> dict:
    return config("qwen3", "Qwen3ForCausalLM", *sizes, tied=tied, vocabulary=151936, head_dim=128)


# Width, inner width, layers, heads, key and value heads, as the repositories' config.json have them.
CONFIGS = {
    "qwen2.5-0.5b": qwen2(896, 4864, 24, 14, 2, tied=True, vocabulary=151936),
    "qwen2.5-1.5b": qwen2(1536, 8960, 28, 12, 2, tied=True, vocabulary=151936),
    "qwen2.5-3b": qwen2(2048, 11008, 36, 16, 2, tied=True, vocabulary=151936),
    "qwen2.5-7b": qwen2(3584, 18944, 28, 28, 4, tied=False, vocabulary=152064),
    "qwen2.5-14b": qwen2(5120, 13824, 48, 40, 8, tied=False, vocabulary=152064),
    "qwen2.5-32b": qwen2(5120, 27648, 64, 40, 8, tied=False, vocabulary=152064),
    "qwen2.5-72b": qwen2(8192, 29568, 80, 64, 8, tied=False, vocabulary=152064),
    "smollm2-135m": llama(576, 1536, 30, 9, 3),
    "smollm2-360m": llama(960, 2560, 32, 15, 5),
    "smollm2-1.7b": llama(2048, 8192, 24, 32, 32),
    "qwen3-0.6b": qwen3(1024, 3072, 28, 16, 8, tied=True),
    "qwen3-1.7b": qwen3(2048, 6144, 28, 16, 8, tied=True),
    "qwen3-4b": qwen3(2560, 9728, 36, 32, 8, tied=True),
    "qwen3-8b": qwen3(4096, 12288, 36, 32, 8, tied=False),
    "qwen3-14b": qwen3(5120, 17408, 40, 40, 8, tied=False),
    "qwen3-32b": qwen3(5120, 25600, 64, 64, 8, tied=False),
}


def base(name: str) -> str:
    return re.sub(r"-(instruct|base)$", "", name)


@pytest.mark.parametrize("entry", [entry for entry in MODELS if not entry.bundled], ids=lambda entry: entry.name)
def test_parameters_are_those_of_the_published_config(entry) -> None:
    fields = Fields(CONFIGS[base(entry.name)], "config.json")
    architecture = architecture_of(fields)
    assert architecture.model_type == entry.architecture
    count = 0
    for tensor in architecture.tensors(architecture.config(fields)):
        size = tensor.layers or 1
        for length in tensor.shape:
            size *= length
        count += size
    assert count == entry.parameters


def test_every_size_is_there() -> None:
    assert {base(name) for name in zoo.names()} == {*CONFIGS, "byte-transformer"}
    instruct = {name for name in CONFIGS if name.startswith(("qwen2.5", "smollm2"))}
    assert {f"{name}-instruct" for name in instruct} <= set(zoo.names())
    assert len(zoo.names()) == len(set(zoo.names())) == 1 + 14 + 6 + 11


def test_licences() -> None:
    others = {entry.name: entry.licence for entry in MODELS if entry.licence != "Apache-2.0"}
    assert others == {
        "qwen2.5-3b": "Qwen Research License",
        "qwen2.5-3b-instruct": "Qwen Research License",
        "qwen2.5-72b": "Qwen License",
        "qwen2.5-72b-instruct": "Qwen License",
    }


def test_entries_are_of_architectures_of_the_zoo() -> None:
    assert {entry.architecture for entry in MODELS} <= {architecture.model_type for architecture in ARCHITECTURES}
    assert {(entry.bundled, entry.revision) for entry in MODELS} == {(True, None), (False, "main")}


@pytest.mark.parametrize("family", sorted({entry.family for entry in MODELS if not entry.bundled}))
def test_a_card_lists_its_family(family: str) -> None:
    card = (ZOO / family / "README.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| ([\d,]+) \| (.+) \| \[(\S+)\]\(https://huggingface\.co/(\S+)\) \|$", card, re.M)
    listed = [(name, int(count.replace(",", "")), licence, repo, link) for name, count, licence, repo, link in rows]
    entries = [entry for entry in MODELS if entry.family == family]
    assert listed == [(e.name, e.parameters, e.licence, e.repo_id, e.repo_id) for e in entries]


def test_cards_are_of_the_registry() -> None:
    families = {entry.family for entry in MODELS}
    cards = {path.parent.name for path in ZOO.glob("*/README.md")}
    assert cards == families


def test_info() -> None:
    entry = zoo.info("qwen2.5-0.5b-instruct")
    assert (entry.repo_id, entry.parameters, entry.licence) == ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, "Apache-2.0")
    assert not entry.bundled
    assert zoo.info("byte-transformer").bundled


def test_a_name_that_is_not_there_brings_those_near() -> None:
    with pytest.raises(zoo.ZooError, match=r"'qwen2-0.5b' is not the name .* Near it: qwen2\.5-0\.5b"):
        zoo.info("qwen2-0.5b")
    with pytest.raises(zoo.ZooError, match=r"zoo\.names\(\), or shardes-zoo list, has them all"):
        zoo.info("?")
