"""What the numbers mean: for each a sentence of advice that depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardes.diagnosis.page import Line

if TYPE_CHECKING:
    from shardes.diagnosis.report import Diagnosis

__all__ = ["lines"]


def lines(d: Diagnosis) -> list[Line]:
    """The lines of a diagnosis, in the order in which causes are best ruled out."""
    return [
        _distinct(d), _non_finite(d), _spread(d), _perturbation(d), _alignment(d), _trained(d), _update(d),
        _constants(d), _flops(d), _memory(d), _history(d),
    ]  # fmt: skip


def _distinct(d: Diagnosis) -> Line:
    finite = d.n - d.non_finite
    alarm = d.distinct <= max(1, finite // 2)
    if finite <= 1:
        advice = "No two members to compare. Raise n, or mend what makes the loss not finite."
    elif d.distinct == 1:
        advice = (
            "All members score alike, so ranks are zero and nothing is learned. The loss does not read its params, "
            "is saturated (clipped, argmax, a reward never met), or sigma is too small to show."
        )
    elif alarm:
        advice = (
            "Few values, as of a 0/1 score: members that tie share their rank and are not told apart. Score on more "
            "data, or by a graded loss such as the log-likelihood."
        )
    else:
        advice = "Fine: members are told apart."
    return Line("distinct fitness", f"{d.distinct} of {finite}", advice, alarm)


def _non_finite(d: Diagnosis) -> Line:
    advice = "Fine: every fitness is finite."
    if d.non_finite:
        advice = (
            "NaN or infinite: counted as the worst of the generation, and says nothing else. Lower sigma, or look for "
            "overflow, log(0) or 0/0 in the loss."
        )
    return Line("non-finite fitness", f"{d.non_finite} of {d.n}", advice, d.non_finite > 0)


def _spread(d: Diagnosis) -> Line:
    drowned = d.spread < d.compute_step / 20 and d.compute_step > d.step
    alarm = (d.spread < 10 * d.step or drowned) and d.distinct > 1
    if d.distinct <= 1:
        advice = "No spread to compare with rounding: see distinct fitness."
    elif drowned:
        advice = (
            f"Only {d.spread / d.compute_step:.2g} steps of {d.compute_dtype}, in which the model computes, at this "
            "fitness: rounding may decide which member is the better. Raise sigma, average over more data, or compute "
            "in float32: compute_dtype=None."
        )
    elif alarm:
        advice = (
            f"Members differ by {d.spread / d.step:.2g} steps of {d.step_dtype} at this fitness ({d.step:.1e} each), "
            "so their order is partly rounding. Raise sigma, compute and reduce the loss in float32, or take a "
            "constant off it."
        )
    else:
        times = f"{d.spread / d.step:.2g} times the" if d.step else "far above the"
        advice = f"Fine: {times} rounding of {d.step_dtype}."
    return Line("fitness spread", f"{d.spread:.3g}", advice, alarm)


def _perturbation(d: Diagnosis) -> Line:
    if d.rounded_away is None:
        return Line("perturbation lost", "no entries", "Fine: it is added to activations, not rounded into weights.")
    alarm = d.rounded_away > 0.25
    path, share = max(d.rounded_away_by_leaf.items(), key=lambda item: item[1])
    if alarm:
        advice = (
            f"sigma * noise rounds back to the same weight in these entries (most in {path!r}: {share:.0%}). Raise "
            "sigma, or compute in float32: compute_dtype=None."
        )
    elif share > 0.25:
        advice = f"Fine overall, but {path!r} loses {share:.0%} to rounding: give it a larger sigma, or freeze it."
    else:
        much = "most of " if d.rounded_away > 0.01 else ""
        advice = f"Fine: {much}sigma * noise survives the rounding of the weights."
    return Line("perturbation lost", f"{d.rounded_away:.2%} of entries", advice, alarm)


def _alignment(d: Diagnosis) -> Line:
    alarm = d.cosine < 0.01
    sampled = f"{d.directions:,} directions in {d.trained:,} dimensions ({d.drawn:,} numbers drawn for each)"
    if alarm:
        advice = (
            f"{sampled}: an update is nearly all noise. Usual for a pretrained model, with a low lr; to learn from "
            f"scratch raise n ({d.n_for_alignment:,} gives 0.1), or train fewer params."
        )
    else:
        advice = f"{'Low, but usual' if d.cosine < 0.1 else 'Fine'}: {sampled}, on a linear loss."
    return Line("cosine to gradient", f"{d.cosine:.2g} expected", advice, alarm)


def _trained(d: Diagnosis) -> Line:
    advice = "Fine: all of them."
    if d.held:
        shown = ", ".join(d.held[:3]) + (f" and {len(d.held) - 3} more" if len(d.held) > 3 else "")
        advice = f"{d.trained:,} of {d.params:,}. Frozen or not float: {shown}. If that is not meant, see freeze."
    return Line("params perturbed", f"{d.trained / max(d.params, 1):.2%}", advice)


def _update(d: Diagnosis) -> Line:
    name, number = "update to weights", "-" if d.update_ratio is None else f"{d.update_ratio:.2g}"
    lr = "the optimizer's learning rate" if d.lr is None else f"lr (now {d.lr:.2g})"
    if d.update_skipped:
        advice = "Skipped: no fitness was finite, or the update was not. The params stay as they are."
        return Line(name, number, advice, True)
    if d.distinct <= 1:
        advice = "Nothing to follow: see distinct fitness. What moves is momentum or weight decay."
        return Line(name, number, advice, True)
    if d.update_ratio is None:
        return Line(name, number, "No ratio: the params are all zero.")
    unchanged = f"{d.update_vanished:.1%} of the entries do not change"
    if d.update_ratio < 1e-7:
        return Line(name, number, f"Too small: {unchanged}, the rest hardly. Raise {lr}.", True)
    if d.update_ratio < 1e-5:
        advice = f"Small: it takes {0.01 / d.update_ratio:,.0f} generations of one mind to move the params by 1%."
        return Line(name, number, advice)
    if d.update_ratio > 0.1:
        return Line(name, number, f"Large: one generation moves the params by {d.update_ratio:.0%}. Lower {lr}.", True)
    return Line(name, number, f"Fine: {unchanged}.")


def _constants(d: Diagnosis) -> Line:
    name = "captured constants"
    if not d.constants:
        return Line(name, "none", "Fine: data comes as arguments.")
    largest = d.constants[0]
    what = f"{largest.name} {largest.dtype}{list(largest.shape)}".lstrip()
    if len(d.constants) > 1:
        what += f" and {len(d.constants) - 1} more"
    advice = (
        f"The loss closes over {what}: compiled into the program, which is slow, and never sees another value. "
        "Pass it as an argument of the loss."
    )
    return Line(name, _si(sum(constant.nbytes for constant in d.constants), "B"), advice, True)


def _flops(d: Diagnosis) -> Line:
    if d.flops is None:
        return Line("compute a member", "unknown", "This backend does not count FLOPs.")
    advice = "The loss on unperturbed params, by XLA's count."
    if d.flops_at_least:
        advice = "At least: the loss by XLA's count, which takes one round of each while loop."
    return Line("compute a member", _si(d.flops, "FLOP"), advice)


def _memory(d: Diagnosis) -> Line:
    if d.temporary_bytes is None:
        return Line("temporary memory", "unknown", "This backend does not say.")
    at_once = "as many at once as its caches hold"
    if d.members_at_once is not None:
        at_once = f"{d.members_at_once:,} at once: {_si(d.temporary_bytes / d.members_at_once, 'B')} each"
    advice = f"Of evaluating {d.members_a_device:,} members there, {at_once}."
    return Line("temporary memory", f"{_si(d.temporary_bytes, 'B')} a device", advice)


def _history(d: Diagnosis) -> Line:
    alarm = bool(d.past_skipped or d.past_non_finite)
    advice = f"Fine: none of {d.generation:,} was skipped, no member lost."
    if d.generation == 0:
        advice = "None before this one."
    elif alarm:
        advice = (
            f"Of {d.generation:,} generations {d.past_skipped:,} changed no params, and {d.past_non_finite:,} members "
            "had a fitness that was not finite. Lower sigma or lr, or mend the loss where it overflows."
        )
    return Line("earlier generations", f"{d.past_skipped} skipped", advice, alarm)


def _si(count: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if count < 1000:
            return f"{count:.3g} {prefix}{unit}"
        count /= 1000
    return f"{count:.3g} P{unit}"
