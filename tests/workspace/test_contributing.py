"""What those who carry on read and run: the changelogs, the citation, the hooks, the workflows, and CONTRIBUTING.md."""

import datetime
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "packages").iterdir())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
CI = ROOT / ".github" / "workflows" / "ci.yml"
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
VERBS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

each_package = pytest.mark.parametrize("package", PACKAGES)
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def parsed(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def version_of(package: str) -> str:
    version: str = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]["version"]
    return version


def verbs_in(text: str) -> set[str]:
    """What `make` is told to do, without its options and variables."""
    commands = re.findall(r"\bmake((?: [a-z][a-z-]*)+)", text)
    return {verb for command in commands for verb in command.split()}


@each_package
def test_a_changelog_holds_the_version(package: str) -> None:
    text = (ROOT / "packages" / package / "CHANGELOG.md").read_text()
    title, *entries = re.split(r"^## ", text, flags=re.MULTILINE)
    assert title.startswith("# Changelog\n")
    assert set(re.findall(r"^#+ (.+)$", "\n".join(entries), re.MULTILINE)) <= KINDS
    headings = [entry.partition("\n")[0] for entry in entries]
    if headings[0] == "[Unreleased]":
        del headings[0]
    found = [re.fullmatch(r"\[(\S+)\] - (\d{4}-\d\d-\d\d)", heading) for heading in headings]
    assert all(found), headings
    versions = [Version(match[1]) for match in found if match]
    dates = [datetime.date.fromisoformat(match[2]) for match in found if match]
    # The entry of a release is written before the version goes up.
    assert Version(version_of(package)) in versions[:2]
    assert versions == sorted(set(versions), reverse=True)
    assert dates == sorted(dates, reverse=True)
    for entry in entries:
        assert re.search(r"^### \w+\n\n- \S", entry, re.MULTILINE), entry


def test_what_is_cited_is_the_core() -> None:
    cited = parsed(ROOT / "CITATION.cff")
    assert set(cited) >= {"cff-version", "message", "title", "authors"}
    assert cited["version"] == version_of("shardes-core")
    project = tomllib.loads((ROOT / "packages" / "shardes-core" / "pyproject.toml").read_text())["project"]
    assert cited["license"] == project["license"]
    assert cited["keywords"] == project["keywords"]


@each_workflow
def test_a_workflow_calls_verbs_of_the_makefile(path: Path) -> None:
    called = set()
    for job in parsed(path)["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for run in (step["run"] for step in job["steps"] if "run" in step):
            for verb in matrix.get("verb", [""]):
                called |= verbs_in(run.replace("${{ matrix.verb }}", verb))
    assert called
    assert called <= VERBS


def test_every_verb_that_checks_is_called() -> None:
    called = verbs_in(re.sub(r"verb: \[(.*)\]", lambda found: found[1].replace(",", " make"), CI.read_text()))
    assert called >= {"test", "test-lowest", "docs", "wheels"}
    assert parsed(CI)["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.12", "3.13"]


@each_workflow
def test_a_workflow_may_do_little_and_runs_once(path: Path) -> None:
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"]
        assert job.get("permissions", {}) == ({"id-token": "write"} if name == "publish" else {})
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", action) for action in uses), uses
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_publishes_runs_nothing_of_the_repository() -> None:
    jobs = parsed(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    publish = jobs["publish"]
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert not any("checkout" in step.get("uses", "") for step in publish["steps"])
    assert [step["run"] for step in publish["steps"] if "run" in step] == [
        "uv publish --trusted-publishing always release/*"
    ]


def test_hooks_are_verbs_of_the_makefile() -> None:
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["entry"] == f"make {hook['id']}"
        assert hook["id"] in VERBS
        assert hook["pass_filenames"] is False


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_asks_what_can_be_answered(path: Path) -> None:
    form = parsed(path)
    assert {"name", "description", "body"} <= set(form)
    names = [field["id"] for field in form["body"]]
    assert len(names) == len(set(names))
    assert all(field["attributes"]["label"] for field in form["body"])
    for field in form["body"]:
        if field["id"] == "package":
            assert set(PACKAGES) < set(field["attributes"]["options"])


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_a_page_names_verbs_and_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    code = re.findall(r"`([^`\n]+)`", text)
    for verb in verbs_in("\n".join([*code, *re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)])):
        assert verb in VERBS, verb
    paths = [span for span in code if re.fullmatch(r"[.\w]+(/[.\w-]+)+|\w+\.md", span)]
    paths += re.findall(r"\]\(([^)#:]+)\)", text)
    for path in paths:
        if not re.search(r"NAME|FAMILY|SUITE|CHANGELOG", path) and path != "shardes/__init__.py":
            assert (ROOT / path).exists() or (ROOT / "tests" / "zoo" / path).exists(), path


def test_every_verb_is_explained() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert {verb for verb in VERBS - {"help"} if f"`make {verb}`" not in text} == set()


def test_recipes_name_what_the_code_has() -> None:
    """Names that the recipes tell to edit are in the files that they name beside them."""
    for name, path in {
        "STRATEGIES": "tests/core/support.py",
        "ARCHITECTURES": "packages/shardes-zoo/src/shardes/zoo/architectures.py",
        "MODULES": "tests/zoo/test_against_transformers.py",
        "ONE_OF_EACH": "tests/zoo/support.py",
        "SUITES": "packages/shardes-tasks/src/shardes/tasks/suites.py",
        "on_host": "packages/shardes-tasks/src/shardes/tasks/gymnasium/task.py",
        "imported": "packages/shardes-tasks/src/shardes/tasks/environments.py",
        "check_name": "packages/shardes-tasks/src/shardes/tasks/environments.py",
        "decoder_architecture": "packages/shardes-zoo/src/shardes/zoo/decoder/language_model.py",
    }.items():
        assert f"`{name}" in (ROOT / "CONTRIBUTING.md").read_text()
        assert re.search(rf"^ *(def |class )?{name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)
