"""What a config.json may say, and what is refused, field by field."""

import itertools
import math

import jax
import pytest

from shardes.zoo import byte_transformer, transformer_block
from shardes.zoo.architectures import ARCHITECTURES, architecture_of
from shardes.zoo.decoder import rope
from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields

from .support import ONE_OF_EACH, fields_of, read_config

QWEN2, LLAMA = "qwen2-tiny-tied", "llama-tiny"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"
)  # fmt: skip

OUT_OF_BOUNDS = list(itertools.product(SIZES, [0, -1, 10**12, 2**21, "64", 64.0, True, [64]]))
NEEDED = [
    (name, field)
    for name in ONE_OF_EACH
    for field in (*SIZES, "rms_norm_eps")
    if (name, field) != ("llama-tiny-biased", "num_key_value_heads")
]


def read(name, **changes):
    return read_config(fields_of(name) | changes)[1]


def without(name, field):
    return {key: value for key, value in fields_of(name).items() if key != field}


class TestSizes:
    @pytest.mark.parametrize("name", ONE_OF_EACH)
    @pytest.mark.parametrize(("field", "value"), OUT_OF_BOUNDS)
    def test_out_of_bounds_or_not_an_integer(self, name, field, value):
        with pytest.raises(CheckpointError, match=rf"json: {field} is .*, and must be an integer from 1 to \d+"):
            read(name, **{field: value})

    @pytest.mark.parametrize(
        ("name", "field"),
        [
            (n, f)
            for n in ONE_OF_EACH
            for f in (*SIZES, "rms_norm_eps")
            if (n[:5], f) != ("llama", "num_key_value_heads")
        ],
    )
    @pytest.mark.parametrize("null", [False, True])
    def test_missing(self, name, field, null):
        with pytest.raises(CheckpointError, match=rf"config\.json: {field} is missing, and is required"):
            read_config(fields_of(name) | {field: None} if null else without(name, field))

    def test_llama_without_key_value_heads_has_one_for_each_query_head(self):
        assert read(LLAMA, num_key_value_heads=None).n_kv_heads == 4

    @pytest.mark.parametrize("name", ONE_OF_EACH)
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_key_value_heads": 3}, "num_key_value_heads is 3, and must be a divisor of num_attention_heads, 4"),
            ({"num_key_value_heads": 8}, "num_key_value_heads is 8, and must be a divisor"),
            ({"head_dim": 15}, "head_dim is 15, and must be such that heads have an even width"),
            ({"head_dim": 0}, "head_dim is 0, and must be an integer from 1"),
            ({"head_dim": -16}, "head_dim is -16, and must be"),
            ({"head_dim": "16"}, "head_dim is '16', and must be"),
            ({"head_dim": 2**30}, "head_dim is .*, and must be"),
            ({"rms_norm_eps": 0}, "rms_norm_eps is 0, and must be a number above 0 and at most 1"),
            ({"rms_norm_eps": -1e-6}, "rms_norm_eps is -1e-06, and must be"),
            ({"rms_norm_eps": 1e9}, "rms_norm_eps is .*, and must be"),
            ({"rms_norm_eps": "1e-6"}, "rms_norm_eps is '1e-6', and must be"),
            ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, and must be"),
            ({"rope_theta": 0}, "rope_theta is 0, and must be a number above 1"),
            ({"rope_theta": -1e6}, "rope_theta is .*, and must be"),
            ({"rope_theta": float("inf")}, "rope_theta is inf, and must be"),
            ({"rope_theta": 10**400}, "rope_theta is 1000.*, and must be"),
            ({"rope_theta": [1e6]}, "rope_theta is .*, and must be"),
            ({"hidden_act": "relu6ish"}, "hidden_act is 'relu6ish', and must be one of .*gelu"),
            ({"hidden_act": 3}, "hidden_act is 3, and must be one of"),
            ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', and must be true or false"),
            ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1, and must be true or false"),
            ({"max_position_embeddings": -5}, "max_position_embeddings is -5, and must be an integer"),
            ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor is 0\.5, and must be 1"),
            ({"is_causal": False}, "is_causal is False, and must be true or left out"),
            ({"use_bidirectional_attention": True}, "use_bidirectional_attention is True, and must be false or left"),
            ({"is_causal": 1}, "is_causal is 1, and must be true or false"),
            ({"layer_types": ["full_attention"]}, r"layer_types is .*, and must be a list of \d"),
            ({"layer_types": "full_attention"}, "layer_types is 'full_attention', and must be a list"),
        ],
    )
    def test_refused(self, name, changes, message):
        with pytest.raises(CheckpointError, match=rf"config\.json: {message}"):
            read(name, **changes)

    def test_heads_that_do_not_divide_the_width(self):
        with pytest.raises(CheckpointError, match="num_attention_heads is 6, and must be a divisor of hidden_size, 64"):
            read(QWEN2, num_attention_heads=6)
        assert read(QWEN2, num_attention_heads=6, head_dim=16).head_dim == 16
        with pytest.raises(CheckpointError, match="num_attention_heads is 64, and must be such that heads have"):
            read(QWEN2, num_attention_heads=64)


class TestRope:
    @pytest.mark.parametrize("name", ONE_OF_EACH)
    @pytest.mark.parametrize(
        ("section", "message"),
        [
            ({"type": "quantum", "factor": 2.0}, "type is 'quantum', and must be one of default, linear, llama3, yarn"),
            ({"rope_type": "longrope"}, "rope_type is 'longrope', and must be one of"),
            ({"rope_type": "yarn", "type": "linear", "factor": 2.0}, "type is 'linear', and must be one of yarn"),
            ({"rope_type": 1}, "rope_type is 1, and must be one of"),
            ([1], r"\[1\], and must be an object"),
            ("yarn", "'yarn', and must be an object"),
            ({"full_attention": {"rope_type": "default"}}, "full_attention is .*, and must be left out"),
            ({"rope_type": "default", "mrope_section": [1]}, "mrope_section is .*, and must be left out"),
            ({"rope_type": "default", "partial_rotary_factor": 0.25}, r"partial_rotary_factor is 0\.25, and must be 1"),
            ({"rope_type": "linear"}, "factor is missing, and is required"),
            ({"rope_type": "linear", "factor": 0}, "factor is 0, and must be a number above "),
            ({"rope_type": "linear", "factor": 1e-40}, "factor is 1e-40, and must be a number above 9.5.*e-07"),
            (YARN | {"factor": 1e-40}, "factor is 1e-40, and must be"),
            (LLAMA3 | {"factor": 1e-40}, "factor is 1e-40, and must be"),
            ({"rope_type": "linear", "factor": -2}, "factor is -2, and must be"),
            (YARN | {"factor": "4"}, "factor is '4', and must be"),
            (YARN | {"factor": 1e20}, "factor is .*, and must be"),
            (YARN | {"original_max_position_embeddings": 0}, "original_max_position_embeddings is 0, and must be"),
            (YARN | {"original_max_position_embeddings": 1.5}, "original_max_position_embeddings is 1"),
            (YARN | {"attention_factor": -1}, "attention_factor is -1, and must be"),
            (YARN | {"beta_fast": 0}, "beta_fast is 0, and must be"),
            (YARN | {"beta_slow": "1"}, "beta_slow is '1', and must be"),
            (YARN | {"truncate": 1}, "truncate is 1, and must be true or false"),
            (YARN | {"rope_theta": 0.5}, r"rope_theta is 0\.5, and must be a number above 1"),
            (LLAMA3 | {"factor": None}, "factor is missing"),
            (LLAMA3 | {"low_freq_factor": None}, "low_freq_factor is missing"),
            (LLAMA3 | {"high_freq_factor": 1.0}, r"high_freq_factor is 1\.0, and must be above low_freq_factor, 1"),
            (LLAMA3 | {"original_max_position_embeddings": None}, "original_max_position_embeddings is missing"),
        ],
    )
    def test_refused(self, name, section, message):
        for field in ("rope_scaling", "rope_parameters"):
            with pytest.raises(CheckpointError, match=rf"config\.json: {field}.*{message}"):
                read(name, **{field: section})

    def test_two_that_differ(self):
        assert read(QWEN2, rope_scaling=YARN, rope_parameters=YARN).rope.scale > 1
        with pytest.raises(CheckpointError, match=r"rope_scaling is .*, and must be left out, or equal to rope_param"):
            read(QWEN2, rope_scaling=YARN, rope_parameters=YARN | {"factor": 2.0})

    def test_kinds(self):
        def plain(theta=1e6):
            return rope.default(16, theta)

        assert read(QWEN2).rope == plain()
        assert read(QWEN2, rope_theta=None).rope == plain(10_000.0)
        assert read(QWEN2, rope_scaling={}).rope == read(QWEN2, rope_scaling={"type": "default"}).rope == plain()
        assert read(QWEN2, rope_parameters={"rope_theta": 500.0}).rope == plain(500.0)
        assert read(QWEN2, rope_scaling={"type": "linear", "factor": 2}).rope == rope.linear(16, 1e6, 2)
        assert read(QWEN2, rope_scaling=LLAMA3).rope == rope.llama3(16, 1e6, 8, 1, 4, 32)
        assert read(QWEN2, rope_scaling=YARN).rope == rope.yarn(16, 1e6, 4, 16)
        options = {"attention_factor": 1.3, "beta_fast": 16, "beta_slow": 2, "truncate": False}
        want = rope.yarn(16, 1e6, 4, 16, scale=1.3, fast=16, slow=2, truncate=False)
        assert read(QWEN2, rope_scaling=YARN | options).rope == want

    def test_yarn_from_the_longest_position(self):
        section = {"rope_type": "yarn", "original_max_position_embeddings": 16}
        assert read(QWEN2, rope_scaling=section, max_position_embeddings=64).rope == rope.yarn(16, 1e6, 4, 16)
        section = {"rope_type": "yarn", "factor": 4}
        assert read(QWEN2, rope_scaling=section, max_position_embeddings=64).rope == rope.yarn(16, 1e6, 4, 64)
        with pytest.raises(CheckpointError, match="original_max_position_embeddings is None, and must be given"):
            read(QWEN2, rope_scaling=section, max_position_embeddings=None)
        with pytest.raises(CheckpointError, match="factor is None, and must be a number"):
            read(QWEN2, rope_scaling=section | {"factor": None, "original_max_position_embeddings": 9},
                 max_position_embeddings=None)  # fmt: skip

    @pytest.mark.parametrize("section", [YARN, LLAMA3])
    def test_original_positions_beside_the_section(self, section):
        name, want = "original_max_position_embeddings", read(QWEN2, rope_scaling=section)
        original = section[name]
        assert read(QWEN2, rope_scaling=section, **{name: original}) == want
        assert read(QWEN2, rope_scaling=section | {name: None}, **{name: original}) == want
        with pytest.raises(CheckpointError, match=rf"json: {name} is 99, and must be left out, or {original} as in"):
            read(QWEN2, rope_scaling=section, **{name: 99})
        assert read(QWEN2, rope_scaling=None, **{name: 99}) == read(QWEN2, rope_scaling=None)

    def test_yarn_with_two_scales(self):
        section = YARN | {"mscale": 0.5, "mscale_all_dim": 2.0}
        assert read(QWEN2, rope_scaling=section).rope.scale == pytest.approx(
            (1 + 0.05 * math.log(4)) / (1 + 0.2 * math.log(4))
        )


class TestWindows:
    @pytest.mark.parametrize("name", [QWEN2, "qwen3-tiny"])
    def test_of_qwen(self, name):
        on = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
        assert read(name).windows is None
        assert read(name, sliding_window=5).windows is None
        assert read(name, **on).windows == (None, 5)
        assert read(name, **on | {"max_window_layers": 0}).windows == (5, 5)
        assert read(name, **on | {"max_window_layers": 2}).windows is None
        assert read(name, **on, layer_types=["sliding_attention", "full_attention"]).windows == (5, None)
        assert read(name, **on, layer_types=["full_attention"] * 2).windows is None

    @pytest.mark.parametrize("name", [QWEN2, "qwen3-tiny"])
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"use_sliding_window": True, "sliding_window": None},
                "sliding_window is None, and must be a pos",
            ),
            ({"use_sliding_window": True, "sliding_window": 0}, "sliding_window is 0, and must be"),
            ({"use_sliding_window": "true"}, "use_sliding_window is 'true', and must be true or false"),
            ({"use_sliding_window": True, "sliding_window": 4, "max_window_layers": -1}, "max_window_layers is -1"),
            ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is .* turns no window on"),
            (
                {"layer_types": ["full_attention", "linear_attention"]},
                "layer_types is .*, and must be made of full",
            ),
            ({"layer_types": ["full_attention", 3]}, "layer_types is .*, and must be made of"),
        ],
    )
    def test_of_qwen_refused(self, name, changes, message):
        with pytest.raises(CheckpointError, match=message):
            read(name, **changes)

    def test_of_mistral(self):
        assert read("mistral-tiny").windows == (8, 8)
        assert read("mistral-tiny", sliding_window=None).windows is None
        assert read_config(without("mistral-tiny", "sliding_window"))[1].windows == (4096, 4096)

    @pytest.mark.parametrize("name", [LLAMA, "gemma-tiny"])
    def test_of_those_that_have_none(self, name):
        assert read(name, sliding_window=8).windows is None
        with pytest.raises(CheckpointError, match=r"layer_types is .* turns no window on"):
            read(name, layer_types=["sliding_attention"] * 2)


class TestArchitectures:
    def test_biases(self):
        assert read(QWEN2).biased == ("q", "k", "v")
        assert read(LLAMA, mlp_bias=True).biased == ("gate", "up", "down")
        assert read(LLAMA, attention_bias=True).biased == read("qwen3-tiny", attention_bias=True).biased
        for field in ("attention_bias", "mlp_bias"):
            with pytest.raises(CheckpointError, match=f"{field} is 1, and must be true or false"):
                read(LLAMA, **{field: 1})

    def test_tied_or_not_where_the_config_does_not_say(self):
        tied = {name: read(name, tie_word_embeddings=None).tied for name in ONE_OF_EACH}
        assert [name for name, value in tied.items() if value] == ["gemma-tiny"]

    def test_width_of_heads_where_the_config_does_not_say(self):
        widths = {name: read(name, head_dim=None).head_dim for name in ONE_OF_EACH}
        assert widths == dict.fromkeys(ONE_OF_EACH, 16) | {"gemma-tiny": 256, "qwen3-tiny": 128}

    def test_activation(self):
        assert read(LLAMA, hidden_act=None).activation == "silu"
        assert read(LLAMA, hidden_act="gelu").activation == "gelu"
        for changes in ({"hidden_act": "gelu", "hidden_activation": None}, {"hidden_act": None}):
            assert read("gemma-tiny", **changes).activation == "gelu_pytorch_tanh"
        with pytest.raises(CheckpointError, match="hidden_activation is 'gelu', and must be one of gelu_pytorch_tanh"):
            read("gemma-tiny", hidden_activation="gelu")

    def test_a_config_is_a_static_argument(self):
        assert hash(read(QWEN2)) == hash(read(QWEN2))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}},
                "model_type is 'evil', .*one of qwen2",
            ),
            ({"model_type": "bert"}, "model_type is 'bert', and must be one of qwen2, llama, qwen3, mistral, gemma"),
            ({"model_type": None}, "model_type is missing"),
            ({"model_type": ["qwen2"]}, r"model_type is \['qwen2'\], and must be one of"),
            (
                {"architectures": ["Qwen2Model"]},
                r"architectures is .*, and must be \['Qwen2ForCausalLM'\] for",
            ),
            ({"architectures": ["Qwen2ForCausalLM", "Other"]}, "architectures is .*, and must be"),
            ({"architectures": []}, "architectures is .*, and must be"),
            ({"architectures": "Qwen2ForCausalLM"}, "architectures is 'Qwen2ForCausalLM', and must be a list"),
            ({"model_type": "llama"}, r"architectures is .*, and must be \['LlamaForCausalLM'\]"),
        ],
    )
    def test_unknown(self, changes, message):
        with pytest.raises(CheckpointError, match=rf"config\.json: {message}"):
            read(QWEN2, **changes)

    def test_known(self):
        kinds = [architecture.model_type for architecture in ARCHITECTURES]
        assert len(set(kinds)) == len(kinds) == 7
        assert read_config(without(QWEN2, "architectures"))[0].model_type == "qwen2"
        assert read(QWEN2, auto_map={"AutoConfig": "evil.Config"}) == read(QWEN2)


class TestOwn:
    def test_byte_transformer(self):
        own = byte_transformer.ARCHITECTURE
        config = byte_transformer.Config(d_model=16, n_layers=3, rope_theta=5e3, norm_eps=1e-5)
        values = {"model_type": own.model_type, "architectures": [own.class_name], **own.config_json(config)}
        assert read_config(values) == (own, config)
        for changes, message in (
            ({"n_heads": 3}, "d_model is 16 and n_heads is 3"),
            ({"n_kv_heads": 3}, "n_heads is 4 and n_kv_heads is 3"),
            ({"n_layers": 2000}, "n_layers is 2000, and must be an integer from 1 to 1024"),
            ({"d_model": "16"}, "d_model is '16', and must be an integer"),
            ({"norm_eps": 0}, "norm_eps is 0, and must be a number above 0"),
            ({"context": None}, "context is missing, and is required"),
        ):
            with pytest.raises(CheckpointError, match=rf"config\.json: {message}"):
                read_config(values | changes)

    def test_transformer_block(self):
        own = transformer_block.ARCHITECTURE
        config = transformer_block.Config(d_model=8)
        assert read_config({"model_type": own.model_type, **own.config_json(config)}) == (own, config)
        assert (own.logits, own.nll, own.generate) == (None, None, None)
        with pytest.raises(CheckpointError, match="d_model is 0, and must be an integer from 1"):
            own.config(Fields({"d_model": 0}, "config.json"))

    @pytest.mark.parametrize("module", [byte_transformer, transformer_block])
    def test_tensors_are_the_leaves_of_init(self, module):
        config = module.Config(d_model=16)
        params = module.init(jax.random.key(0), config if module is byte_transformer else config.d_model)
        leaves = {
            tuple(jax.tree_util.keystr((key,), simple=True) for key in path if "layers" not in str(key)): leaf.shape
            for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        }
        tensors = module.ARCHITECTURE.tensors(config)
        described = {t.leaf: ((t.layers,) if t.layers else ()) + t.shape for t in tensors}
        assert described == leaves
        names = [name for tensor in tensors for name in tensor.names]
        assert len(set(names)) == len(names)


def test_architecture_of_is_given_fields():
    assert architecture_of(Fields(fields_of(LLAMA), "config.json")).class_name == "LlamaForCausalLM"
