"""Generation by what it promises, on a decoder of twelve tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes.zoo import llama
from shardes.zoo.decoder import generation
from shardes.zoo.decoder.blocks import pre_norm_block
from shardes.zoo.decoder.choosing import Rules, choose
from shardes.zoo.decoder.forward import Decoder
from shardes.zoo.decoder.layers import rms_norm

from .support import random_params, tiny_config

CONFIG = tiny_config(windows=(3, None), tied=False, biased=("q",))
PARAMS = random_params(llama.ARCHITECTURE, CONFIG)
IDS = np.random.default_rng(0).integers(0, 12, (3, 5))
KEY = jax.random.key(7)


def generate(ids=IDS, **arguments):
    return np.asarray(llama.generate(PARAMS, ids, CONFIG, **({"max_new_tokens": 9} | arguments)))


def score(ids):
    """Scores of the next token of one sequence, by plain scoring."""
    return np.asarray(llama.logits(PARAMS, np.asarray(ids)[None], CONFIG), np.float64)[0, -1]


class TestGreedy:
    def test_scoring_again_for_every_token(self):
        want = IDS.tolist()
        for row in want:
            for _ in range(9):
                row.append(int(score(row).argmax()))
        np.testing.assert_array_equal(generate(), want)

    def test_a_row_does_not_depend_on_the_others_or_on_its_padding(self):
        whole = generate()
        np.testing.assert_array_equal(generate(IDS[1:2]), whole[1:2])
        padded = np.concatenate([np.full((3, 2), 11), IDS], axis=1)
        mask = np.concatenate([np.zeros((3, 2), int), np.ones((3, 5), int)], axis=1)
        np.testing.assert_array_equal(generate(padded, mask=mask)[:, 2:], whole)
        np.testing.assert_array_equal(generate(padded, mask=mask.astype(bool))[:, 2:], whole)

    def test_padding_did_not_occur(self):
        """A row that may not repeat what it has seen is the same with padding of any token before it."""
        whole = generate(repetition_penalty=100.0)
        mask = np.concatenate([np.zeros((3, 2), int), np.ones((3, 5), int)], axis=1)
        for pad in range(0, 12, 3):
            padded = np.concatenate([np.full((3, 2), pad), IDS], axis=1)
            np.testing.assert_array_equal(generate(padded, mask=mask, repetition_penalty=100.0)[:, 2:], whole)

    def test_one_token(self):
        np.testing.assert_array_equal(generate(max_new_tokens=1), generate()[:, :6])

    def test_prompt_of_one_token(self):
        row = [4]
        for _ in range(9):
            row.append(int(score(row).argmax()))
        np.testing.assert_array_equal(generate(np.array([[4]])), [row])

    def test_repetition_penalty(self):
        want = IDS.tolist()
        for row in want:
            for _ in range(9):
                scores = score(row)
                for token in set(row):
                    scores[token] = scores[token] * 1.7 if scores[token] < 0 else scores[token] / 1.7
                row.append(int(scores.argmax()))
        np.testing.assert_array_equal(generate(repetition_penalty=1.7), want)
        assert (generate(repetition_penalty=1.7) != generate()).any()

    def test_repetition_penalty_pushes_negative_scores_down_too(self):
        scores, occurred = jnp.array([[-1.0, -1.5, -9.0]]), jnp.array([[True, False, False]])
        rules = Rules(penalty=jnp.float32(2.0))
        assert choose(scores, occurred, jnp.int32(0), rules).tolist() == [1]
        assert choose(scores + 3.1, occurred, jnp.int32(0), rules).tolist() == [1]
        assert choose(scores + 9, occurred, jnp.int32(0), Rules()).tolist() == [0]

    def test_several_end_tokens(self):
        want = generate().copy()
        ends = [int(want[0, 8]), int(want[1, 5])]
        assert ends[0] != ends[1]
        length = [next(t for t in (*range(5, 14), 13) if row[t] in ends or t == 13) + 1 for row in want]
        assert min(length) < max(length)
        for pad in (3, None):
            for row, n in zip(want, length, strict=True):
                row[n:] = ends[0] if pad is None else pad
            np.testing.assert_array_equal(generate(eos_token_id=ends, pad_token_id=pad), want)

    def test_stops_when_every_row_has_ended(self):
        blocks = []

        def block(*arguments):
            jax.debug.callback(lambda: blocks.append(1))
            return pre_norm_block(*arguments)

        own = Decoder(block, rms_norm)
        free = generate()
        for ends, steps in ((list(range(12)), 1), (free[:, 7].tolist(), 3)):
            blocks.clear()
            got = generation.generate(PARAMS, IDS, CONFIG, own, max_new_tokens=9, eos_token_id=ends, pad_token_id=0)
            jax.effects_barrier()
            assert len(blocks) <= CONFIG.n_layers * steps
            assert (np.asarray(got)[:, 5 + steps :] == 0).all()

    @pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, windows=None)], ids=["window", "no window"])
    def test_layers_scanned_at_every_step_make_no_difference(self, config, monkeypatch):
        arguments = {"max_new_tokens": 12, "repetition_penalty": 1.3}
        want = llama.generate(PARAMS, IDS, config, **arguments)
        monkeypatch.setattr(generation, "is_worthwhile", lambda *_, **__: False)
        # Another block is another program.
        own = Decoder(lambda *arguments: pre_norm_block(*arguments), rms_norm)
        np.testing.assert_array_equal(generation.generate(PARAMS, IDS, config, own, **arguments), want)

    def test_members_share_one_loop(self):
        """A condition for each member would copy every member's cache at every step, to hold back those that ended."""

        def loops(jaxpr):
            for equation in jaxpr.eqns:
                if equation.primitive.name == "while":
                    yield equation
                for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
                    if hasattr(inner, "eqns"):
                        yield from loops(inner)

        members = jax.tree.map(lambda x: jnp.stack([x, -x]), PARAMS)
        run = jax.vmap(lambda params: llama.generate(params, IDS, CONFIG, max_new_tokens=3, eos_token_id=5))
        conditions = [loop.params["cond_jaxpr"].out_avals[0] for loop in loops(jax.make_jaxpr(run)(members).jaxpr)]
        assert [condition.shape for condition in conditions] == [()]

    def test_fully_masked_rows_disturb_nothing(self):
        mask = np.ones((3, 5), int)
        mask[1] = 0
        got = generate(mask=mask)
        np.testing.assert_array_equal(got[[0, 2]], generate()[[0, 2]])
        assert ((got >= 0) & (got < 12)).all()
        scores = llama.logits(PARAMS, IDS, CONFIG, mask)
        assert np.isfinite(np.asarray(scores)).all()
        assert llama.nll(PARAMS, IDS, CONFIG, mask)[1] == 0

    def test_compiled_once_a_shape(self):
        generate(temperature=0.5, top_p=0.5, key=KEY, repetition_penalty=1.5, eos_token_id=1)
        before = generation._generate._cache_size()
        other = jax.random.key(3)
        generate(IDS[::-1], temperature=2.0, top_p=0.9, key=other, repetition_penalty=1.1, eos_token_id=[2, 3, 4])
        assert generation._generate._cache_size() == before

    def test_under_jit(self):
        run = jax.jit(lambda params, ids: llama.generate(params, ids, CONFIG, max_new_tokens=9, eos_token_id=5))
        np.testing.assert_array_equal(run(PARAMS, IDS), generate(eos_token_id=5))


class TestSampling:
    N = 4000

    def draw(self, **arguments):
        """Next tokens of one prompt, many times."""
        ids = np.broadcast_to(IDS[:1], (self.N, 5))
        return generate(ids, max_new_tokens=1, key=KEY, **arguments)[:, -1]

    @staticmethod
    def distribution(temperature, top_p=1.0, penalty=1.0):
        scores = score(IDS[0])
        for token in set(IDS[0]):
            scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
        p = np.exp(scores / temperature)
        p /= p.sum()
        kept = np.zeros(12, bool)
        for token in np.argsort(-p):
            if p[kept].sum() < top_p:
                kept[token] = True
        return np.where(kept, p, 0) / p[kept].sum()

    @pytest.mark.parametrize(
        "arguments",
        [
            {"temperature": 1.5},
            {"temperature": 4.0, "top_p": 0.7},
            {"temperature": 0.7, "top_p": 0.9},
            {"temperature": 2.0, "top_p": 0.8, "penalty": 2.0},
            {"temperature": 1.0, "top_p": 1e-9},
        ],
        ids=str,
    )
    def test_distribution(self, arguments):
        p = self.distribution(**arguments)
        renamed = {("repetition_penalty" if k == "penalty" else k): v for k, v in arguments.items()}
        observed = np.bincount(self.draw(**renamed), minlength=12)
        assert (observed[p == 0] == 0).all()
        likely = p > 0
        expected = self.N * p[likely]
        statistic = ((observed[likely] - expected) ** 2 / expected).sum()
        assert statistic < likely.sum() + 5 * np.sqrt(2 * likely.sum())

    def test_the_key_decides(self):
        arguments = {"temperature": 2.0, "top_p": 0.95}
        first = generate(key=KEY, **arguments)
        np.testing.assert_array_equal(first, generate(key=KEY, **arguments))
        assert (first != generate(key=jax.random.key(8), **arguments)).any()
        np.testing.assert_array_equal(first[:, :5], IDS)

    def test_steps_draw_apart(self):
        ids = np.broadcast_to(IDS[:1], (64, 5))
        got = generate(ids, key=KEY, temperature=1e6, max_new_tokens=6)[:, 5:]
        assert all((got[:, i] != got[:, j]).any() for i in range(6) for j in range(i))
        assert len({tuple(row) for row in got}) > 60

    def test_low_temperature_is_greedy(self):
        np.testing.assert_array_equal(generate(key=KEY, temperature=1e-4), generate())


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"max_new_tokens": 0}, "max_new_tokens is 0, and must be an integer from 1 to 16777216"),
            ({"max_new_tokens": 2.0}, r"max_new_tokens is 2\.0, and must be an integer"),
            ({"temperature": -1}, "temperature is -1, and must be a number of at least 0"),
            ({"temperature": float("nan")}, "temperature is nan, and must be a number"),
            ({"temperature": 1.0}, "key is None, and sampling needs a key. Give key="),
            ({"temperature": 1.0, "key": KEY, "top_p": 0}, "top_p is 0, and must be a number above 0 and at most 1"),
            ({"top_p": 1.5}, r"top_p is 1\.5, and must be"),
            ({"repetition_penalty": 0}, "repetition_penalty is 0, and must be a number from 0.001 to 1000"),
            ({"repetition_penalty": "2"}, "repetition_penalty is '2', and must be a number from 0.001 to 1000"),
            ({"eos_token_id": "stop"}, "eos_token_id is 'stop', and must be a token id from 0 to 11, several, or None"),
            ({"eos_token_id": b"1"}, "eos_token_id is b'1', and must be"),
            ({"eos_token_id": True}, "eos_token_id is True, and must be"),
            ({"eos_token_id": np.ones((1, 1), int)}, r"eos_token_id is array\(\[\[1\]\]\), and must be"),
            ({"eos_token_id": np.ones(2)}, r"eos_token_id is array\(\[1., 1.\]\), and must be"),
            ({"eos_token_id": [3, 12]}, r"eos_token_id is \[3, 12\], and must be"),
            ({"eos_token_id": [1, None]}, r"eos_token_id is \[1, None\], and must be"),
            ({"pad_token_id": 1.5}, r"pad_token_id is 1\.5, and must be one token id from 0 to 11, or None"),
            ({"pad_token_id": [1]}, r"pad_token_id is \[1\], and must be one token id"),
            ({"pad_token_id": 12}, r"pad_token_id is 12, and must be one token id"),
            ({"ids": IDS[0]}, r"ids have shape \(5,\), and must have shape \(batch, seq\).*ids\[None\]"),
            ({"ids": IDS[:, :0]}, r"ids have shape \(3, 0\), and must have"),
            ({"ids": IDS + 12}, r"ids go from \d+ to \d+, and must be from 0 to 11.*the tokenizer that belongs"),
            ({"ids": IDS - 12}, r"ids go from -\d+ to -\d+, and must be from 0 to 11"),
            ({"mask": np.ones((3, 4), int)}, r"mask has shape \(3, 4\), and must have that of the ids, \(3, 5\)"),
            ({"mask": np.arange(5)[None] < [[5], [4], [5]]}, "mask has a row that ends with padding.*Pad on the left"),
        ],
    )
    def test_wrong_values(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            generate(**arguments)

    def test_wrong_types(self):
        with pytest.raises(TypeError, match="ids have dtype float32, and must be integers"):
            generate(jnp.ones((2, 3)))
        with pytest.raises(TypeError, match="mask has dtype float32, and must be integers or booleans"):
            generate(mask=jnp.ones((3, 5)))

    def test_scoring(self):
        with pytest.raises(ValueError, match=r"ids have shape \(3, 1\), and must have .* seq at least 2"):
            llama.nll(PARAMS, IDS[:, :1], CONFIG)
        with pytest.raises(ValueError, match=r"ids go from 0 to 12, and must be from 0 to 11"):
            llama.logits(PARAMS, np.array([[0, 12]]), CONFIG)
        with pytest.raises(ValueError, match=r"mask has shape \(3,\)"):
            llama.nll(PARAMS, IDS, CONFIG, np.ones(3, int))


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-6])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_tiny_temperature_takes_the_likeliest(temperature, top_p):
    np.testing.assert_array_equal(generate(temperature=temperature, top_p=top_p, key=KEY), generate())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"temperature": 10**400, "key": KEY}, "temperature is 1000"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty is 1e-40, and must be a number from 0.001 to 1000"),
        ({"repetition_penalty": 1e300}, "repetition_penalty is 1e.300, and must be a number from 0.001 to 1000"),
        ({"max_new_tokens": 2**31}, "max_new_tokens is 2147483648, and must be an integer from 1 to"),
        ({"eos_token_id": 2**31}, "eos_token_id is 2147483648, and must be a token id"),
        ({"pad_token_id": -1}, "pad_token_id is -1, and must be one token id"),
        ({"ids": np.zeros((0, 3), int)}, "batch at least 1"),
    ],
    ids=range(7),
)
def test_numbers_beyond_reason(arguments, text):
    with pytest.raises(ValueError, match=text):
        generate(**arguments)


def test_integers_of_numpy_are_integers():
    np.testing.assert_array_equal(generate(max_new_tokens=np.int64(9)), generate())


@pytest.mark.parametrize(
    "ends",
    [[3, 5], (3, 5), {3, 5}, frozenset({3, 5}), range(3, 6, 2), np.array([3, 5]), jnp.array([3, 5]), iter([3, 5])],
    ids=lambda ends: type(ends).__name__,
)
def test_end_tokens_in_any_iterable(ends):
    np.testing.assert_array_equal(
        generate(eos_token_id=ends, pad_token_id=0), generate(eos_token_id=[5, 3], pad_token_id=0)
    )


@pytest.mark.parametrize("end", [np.int32(3), np.array(3), jnp.array(3)], ids=["numpy", "array", "jax"])
def test_one_end_token_of_any_kind(end):
    np.testing.assert_array_equal(generate(eos_token_id=end), generate(eos_token_id=3))


def test_a_traced_end_token_is_refused():
    with pytest.raises(ValueError, match=r"eos_token_id is .*, and must be a token id"):
        jax.jit(lambda end: llama.generate(PARAMS, IDS, CONFIG, max_new_tokens=2, eos_token_id=end))(jnp.array([3]))
