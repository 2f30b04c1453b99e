"""Why it does not learn: a generation measured, and a page that says what its numbers mean."""

from shardes.diagnosis.measure import diagnose
from shardes.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
