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
