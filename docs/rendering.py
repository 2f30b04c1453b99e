"""What the site takes from the repository when it is built: sources, plots, and the numbers of the results.

Pages are templates: what stands in braces comes from `validation/results`; a name that is not there fails the build.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "validation" / "results"


def on_startup(command: str, dirty: bool) -> None:
    """Make one tree of the namespace, which is spread over the packages, for mkdocstrings, which reads sources."""
    merged = ROOT / ".tools" / "site" / "shardes"
    merged.mkdir(parents=True, exist_ok=True)
    sources = {source.name: source for source in ROOT.glob("packages/*/src/shardes/*") if source.name != "__pycache__"}
    # What is right is left, since another build may be reading it.
    for name in {link.name for link in merged.iterdir()} - set(sources):
        (merged / name).unlink(missing_ok=True)
    for name, source in sources.items():
        if not (merged / name).exists():
            (merged / name).unlink(missing_ok=True)
            (merged / name).symlink_to(os.path.relpath(source, merged))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the plots beside the results."""
    for plot in sorted(RESULTS.rglob("*.svg")):
        uri = f"validation/{plot.relative_to(RESULTS).as_posix()}"
        files.append(File.generated(config, uri, abs_src_path=str(plot)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill a page in."""
    return TEMPLATES.from_string(markdown).render()


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name sources by their import path, not by the tree that was made of them."""
    return html.replace(".tools/site/shardes/", "shardes/")


def result(name: str) -> Any:
    """A result file, such as "scale/loop"."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def results() -> dict[str, Any]:
    """All of them, by name."""
    names = sorted(path.relative_to(RESULTS).with_suffix("").as_posix() for path in RESULTS.rglob("*.json"))
    return {name: result(name) for name in names}


def shows() -> dict[str, str]:
    """What the check of every result shows, by the result's name."""
    from validation.__main__ import CHECKS

    return {check.result.removesuffix(".json"): check.shows for check in CHECKS}


def rows_of(found: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    """The rows of a result that have these values, of which there must be one."""
    rows = [row for row in found["rows"] if all(row[name] == value for name, value in wanted.items())]
    if not rows:
        raise LookupError(f"no row has {wanted}")
    return rows


def measured(found: dict[str, Any]) -> str:
    """When a result was measured, and on what; of one in parts, the latest of them."""
    parts = found["found"].values() if "found" in found else [found]
    where = max((part["environment"] for part in parts), key=lambda environment: environment["date"])
    return f"{where['date'][:10]}, {where['cores']} cores, jax {where['jax']}"


def plots() -> list[str]:
    """Names of the results that have a plot."""
    return [path.relative_to(RESULTS).with_suffix("").as_posix() for path in sorted(RESULTS.rglob("*.svg"))]


def families() -> list[dict[str, Any]]:
    """What the zoo has, a row a card."""
    from shardes.zoo.registry import MODELS

    rows = []
    for folder, models in itertools.groupby(MODELS, key=lambda entry: entry.family):
        entries = list(models)
        sizes = sorted({entry.parameters for entry in entries})
        rows.append(
            {
                "folder": folder,
                "title": (ROOT / "zoo" / folder / "README.md").read_text().splitlines()[0].removeprefix("# "),
                "count": len(entries),
                "sizes": " to ".join(si(size, "").strip().replace("G", "B") for size in sorted({sizes[0], sizes[-1]})),
                "architecture": entries[0].architecture,
                "licences": ", ".join(dict.fromkeys(entry.licence for entry in entries)),
            }
        )
    return rows


def page_of(path: str) -> str:
    """A page that lies at the root of the repository, from where its links to other pages begin with docs/."""
    return (ROOT / path).read_text(encoding="utf-8").replace("](docs/", "](")


@functools.cache
def printed(script: str) -> str:
    """What an example prints."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, script]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def si(value: float, unit: str) -> str:
    """A number to three digits with a prefix: 1.2e-3 of "s" is "1.2 ms"."""
    scales = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
    scale, prefix = next(((s, p) for s, p in scales if abs(value) >= 0.9995 * s), (1, ""))
    return f"{value / scale:.3g} {prefix}{unit}"


TEMPLATES = jinja2.Environment(
    undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
TEMPLATES.globals |= {
    function.__name__: function
    for function in (result, results, shows, rows_of, measured, plots, families, page_of, printed)
}
TEMPLATES.filters |= {
    "si": si,
    "fixed": lambda value, digits=2: f"{value:.{digits}f}",
    "thousands": lambda value: f"{value:,}",
}
