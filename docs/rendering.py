"""What the site takes from the repository when it is built: sources, figures, and the numbers of the results.

Pages are templates: what stands in braces comes from `validation/results`, and a name that is not there fails the build.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jinja2
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "validation" / "results"


def on_startup(command: str, dirty: bool) -> None:
    """Make one tree of the namespace, which is spread over the packages: a tool that reads sources does not run them."""
    merged = ROOT / ".tools" / "site" / "shardes"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    for source in sorted(ROOT.glob("packages/*/src/shardes/*")):
        if source.name != "__pycache__":
            (merged / source.name).symlink_to(os.path.relpath(source, merged))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the plots beside the results."""
    for plot in sorted(RESULTS.rglob("*.svg")):
        uri = f"validation/{plot.relative_to(RESULTS).as_posix()}"
        files.append(File.generated(config, uri, abs_src_path=str(plot)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill a page in."""
    return TEMPLATES.from_string(markdown).render()


def result(name: str) -> Any:
    """A result file, such as "scale/loop"."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def results() -> dict[str, Any]:
    """All of them, by name."""
    names = sorted(path.relative_to(RESULTS).with_suffix("").as_posix() for path in RESULTS.rglob("*.json"))
    return {name: result(name) for name in names}


def si(value: float, unit: str) -> str:
    """A number to three digits with a prefix: 1.2e-3 of "s" is "1.2 ms"."""
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ")):
        if abs(value) >= scale * 0.9995:
            break
    return f"{value / scale:.3g} {prefix}{unit}"


TEMPLATES = jinja2.Environment(
    undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
TEMPLATES.globals |= {"result": result, "results": results, "plots": lambda: {p.stem for p in RESULTS.rglob("*.svg")}}
TEMPLATES.filters |= {
    "si": si,
    "fixed": lambda value, digits=2: f"{value:.{digits}f}",
    "thousands": lambda value: f"{value:,}",
}
