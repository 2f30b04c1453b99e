"""One measurement: python -m validation.scale.worker PART REQUEST FILE, as one process of a run or by itself."""

import importlib
import json
import os
import sys
from pathlib import Path

import jax

import shardes


def main() -> None:
    """Measure, and let the first process write the rows."""
    part, request, out = sys.argv[1:]
    if "SHARDES_PROCESSES" in os.environ:
        shardes.distributed.initialize()
    rows = importlib.import_module(f"validation.scale.{part}").measure(**json.loads(request))
    if jax.process_index() == 0:
        Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
