"""Evolution strategies in JAX, the population split over every device of every host."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from shardes import presets, random, shaping
from shardes.diagnosis import Diagnosis, diagnose
from shardes.es import ShardedES
from shardes.mesh import make_mesh
from shardes.replay import ReplayError, ReplayLog, replay
from shardes.stacked import Stacked
from shardes.state import ESState, Optimizer, Perturbation
from shardes.strategies import IIDGaussian, LowRank, Mirrored, SeedRegenerated, Strategy
from shardes.structured import StructuredWeight, StructuredWeightError

__all__ = [
    "Diagnosis",
    "ESState",
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
    "diagnose",
    "make_mesh",
    "presets",
    "random",
    "replay",
    "shaping",
]
