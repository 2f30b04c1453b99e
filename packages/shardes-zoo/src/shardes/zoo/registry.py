"""The models that have a name of their own in the zoo."""

from __future__ import annotations

import dataclasses
import difflib

from shardes.zoo.errors import ZooError

__all__ = ["MODELS", "Entry", "info", "names", "near"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model of the zoo.

    Attributes:
        name: what `zoo.load` takes.
        family: its folder in `zoo/` of the repository, which holds its card.
        architecture: the `model_type` of its config.
        parameters: how many numbers its params hold, a tied embedding once.
        licence: of the weights, by its SPDX identifier where it has one.
        repo_id: of the Hub, None if the model comes with the package.
        revision: what is loaded unless told otherwise: the newest. None if the model comes with the package.
    """

    name: str
    family: str
    architecture: str
    parameters: int
    licence: str
    repo_id: str | None = None
    revision: str | None = None

    @property
    def bundled(self) -> bool:
        """Whether the model comes with the package, and needs no network."""
        return self.repo_id is None


def names() -> tuple[str, ...]:
    """Names of the models that `zoo.load` knows."""
    return tuple(_BY_NAME)


def info(name: str) -> Entry:
    """What the zoo knows of a model. Raises ZooError for a name that is not registered, with those near it."""
    entry = _BY_NAME.get(name)
    if entry is None:
        raise ZooError(f"{name!r} is not the name of a model of the zoo.{near(name)}")
    return entry


def near(name: str) -> str:
    """A sentence with the names that are like a given one, or with how to see them all."""
    found = difflib.get_close_matches(str(name).lower(), _BY_NAME, n=3, cutoff=0.5)
    return f" Near it: {', '.join(found)}." if found else " zoo.names(), or shardes-zoo list, has them all."


def _family(
    family: str,
    owner: str,
    architecture: str,
    prefix: str,
    suffixes: tuple[str, ...],
    sizes: dict[str, tuple[int, str]],
) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            f"{prefix}-{size}{suffix}".lower(),
            family,
            architecture,
            parameters,
            licence,
            f"{owner}/{prefix}-{size}{suffix}",
            "main",
        )
        for size, (parameters, licence) in sizes.items()
        for suffix in suffixes
    )


_APACHE = "Apache-2.0"

MODELS: tuple[Entry, ...] = (
    Entry("byte-transformer", "byte-transformer", "shardes_byte_transformer", 820_352, _APACHE),
    *_family(
        *("qwen2.5", "Qwen", "qwen2", "Qwen2.5", ("", "-Instruct")),
        {
            "0.5B": (494_032_768, _APACHE),
            "1.5B": (1_543_714_304, _APACHE),
            "3B": (3_085_938_688, "Qwen Research License"),
            "7B": (7_615_616_512, _APACHE),
            "14B": (14_770_033_664, _APACHE),
            "32B": (32_763_876_352, _APACHE),
            "72B": (72_706_203_648, "Qwen License"),
        },
    ),
    *_family(
        *("smollm2", "HuggingFaceTB", "llama", "SmolLM2", ("", "-Instruct")),
        {"135M": (134_515_008, _APACHE), "360M": (361_821_120, _APACHE), "1.7B": (1_711_376_384, _APACHE)},
    ),
    *_family(
        *("qwen3", "Qwen", "qwen3", "Qwen3", ("", "-Base")),
        {
            "0.6B": (596_049_920, _APACHE),
            "1.7B": (1_720_574_976, _APACHE),
            "4B": (4_022_468_096, _APACHE),
            "8B": (8_190_735_360, _APACHE),
            "14B": (14_768_307_200, _APACHE),
        },
    ),
    *_family("qwen3", "Qwen", "qwen3", "Qwen3", ("",), {"32B": (32_762_123_264, _APACHE)}),
)

_BY_NAME = {entry.name: entry for entry in MODELS}
