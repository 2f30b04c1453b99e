"""The figures of the README are those of the committed results."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_speed_beside_the_published_package() -> None:
    readme = (ROOT / "README.md").read_text()
    means = json.loads((ROOT / "validation/results/peers.json").read_text())["geometric_means"]
    for program, label in (
        ("LowRank(1)", "LowRank(1)"),
        ("LowRank(4)", "LowRank(4)"),
        ("SeedRegenerated", "SeedRegenerated()"),
        ("IIDGaussian", "IIDGaussian()"),
    ):
        cells = (f"{means[program][ratio]:.2f} x" for ratio in ("throughput", "compile", "memory"))
        assert f"| `{label}` | {' | '.join(cells)} |" in readme
    assert f"A generation of `LowRank` runs at {means['LowRank']['of_floor']:.2f} of the speed" in readme


def test_bits_a_byte_of_the_bundled_model() -> None:
    card = (ROOT / "zoo/byte-transformer/README.md").read_text()
    found = json.loads((ROOT / "validation/results/byte_transformer.json").read_text())
    assert f"| on as much of the training text | {found['train']:.3f} |" in card
    assert f"| held out | {found['held_out']:.3f} |" in card
    assert f"| held out, by the frequencies of bytes alone | {found['held_out_under_byte_frequencies']:.3f} |" in card
    assert f"| `byte-transformer` | {found['parameters']:,} |" in card
    assert f"Adam for {found['steps']} steps" in card


def test_what_determinism_costs() -> None:
    readme = (ROOT / "packages/shardes-core/README.md").read_text()
    rows = json.loads((ROOT / "validation/results/scale/determinism.json").read_text())["rows"]
    one, eight = ([row["cost"] for row in rows if row["devices"] == devices] for devices in (1, 8))
    assert f"{min(one):.2f} to {max(one):.2f} times as long with it on one device" in readme
    assert f"{min(eight):.2f} to {max(eight):.2f} times on eight simulated ones" in readme
