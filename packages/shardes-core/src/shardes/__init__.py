"""Evolution strategies in JAX, the population split over every device of every host."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from shardes import callbacks, distributed, presets, random, shaping
from shardes.diagnosis import Diagnosis, diagnose
from shardes.es import ShardedES
from shardes.fit import fit
from shardes.frozen import Frozen
from shardes.generation import Generation, History, Summary
from shardes.mesh import make_mesh
from shardes.replay import ReplayError, ReplayLog, replay
from shardes.stacked import Stacked
from shardes.state import ESState, Optimizer, Perturbation
from shardes.strategies import IIDGaussian, LowRank, Mirrored, SeedRegenerated, Strategy
from shardes.structured import StructuredWeight, StructuredWeightError

__all__ = [
    "Diagnosis",
    "ESState",
    "Frozen",
    "Generation",
    "History",
    "IIDGaussian",
    "LowRank",
    "Mirrored",
    "Optimizer",
    "Perturbation",
    "ReplayError",
    "ReplayLog",
    "SeedRegenerated",
    "ShardedES",
    "Stacked",
    "Strategy",
    "StructuredWeight",
    "StructuredWeightError",
    "Summary",
    "callbacks",
    "diagnose",
    "distributed",
    "fit",
    "make_mesh",
    "presets",
    "random",
    "replay",
    "shaping",
]
