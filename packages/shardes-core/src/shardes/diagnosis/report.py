"""The numbers of a diagnosis, whose text is the page."""

from __future__ import annotations

import dataclasses

from shardes.diagnosis.advice import lines
from shardes.diagnosis.page import Line, page
from shardes.diagnosis.program import Constant

__all__ = ["Diagnosis"]


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `shardes.diagnose` measured in one generation. `print` it to read what the numbers mean."""

    strategy: str
    n: int
    generation: int
    """Number of the generation that was measured, the first being 0."""
    lr: float | None
    """Learning rate of the generation; None with an optimizer."""

    distinct: int
    """Different finite values of fitness, of each member's mean over its episodes."""
    non_finite: int
    """Members with a fitness that is not finite."""
    spread: float
    """Standard deviation of the finite fitness over the members."""
    step: float
    """Distance of neighbouring numbers at the mean of |fitness|, in the dtype that the fitness has been rounded to."""
    step_dtype: str
    """That dtype: the fitness's own, or a narrower one that the loss computes in and every fitness is a number of."""
    compute_step: float
    """The same distance in the dtype that the model sees its params in."""
    compute_dtype: str

    rounded_away: float | None
    """Share of the entries of one direction's perturbed arrays that rounded back to the weight; None without such."""
    rounded_away_by_leaf: dict[str, float]
    """The same by leaf. Structured weights, whose perturbation is never added to the weight, are not in it."""

    directions: int
    trained: int
    """Entries that are perturbed and updated."""
    params: int
    """Entries of all leaves."""
    held: tuple[str, ...]
    """Paths of the leaves that are frozen, or are not float."""
    drawn: int
    """Random numbers that make up one direction."""
    cosine: float
    """Cosine of the estimate with the gradient that n allows on a linear loss."""
    n_for_alignment: int
    """Members that would make it 0.1."""

    update_ratio: float | None
    """|change| / |params| over the trained leaves in one tell; None where the params are all zero."""
    update_vanished: float
    """Share of trained entries that the tell did not change."""
    update_skipped: bool
    """Whether the tell counted the generation as skipped."""

    constants: tuple[Constant, ...]
    """Arrays of 1 MiB and more that the loss captured."""
    flops: float | None
    """FLOPs of the loss of one member on unperturbed params, without the noise; None where XLA does not say."""
    flops_at_least: bool
    """Whether the loss has a loop of unknown length, of which one round is counted."""
    temporary_bytes: int | None
    """Temporary memory of the whole evaluation on one device, as compiled; None where the backend does not say."""
    members_a_device: int
    members_at_once: int | None
    """Members that a device holds at a time; None on a CPU where its caches decide."""

    past_non_finite: int
    """Members of earlier generations whose fitness was not finite."""
    past_skipped: int
    """Earlier generations that changed no params."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """Names of the lines of the page that call for action."""
        return tuple(line.name for line in self._lines if line.alarm)

    @property
    def _lines(self) -> list[Line]:
        return lines(self)

    def __str__(self) -> str:
        return page(f"Generation {self.generation} of {self.strategy}, n={self.n}", self._lines)
