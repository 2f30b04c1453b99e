"""Downloads by the real client from a Hub on loopback: what is fetched, what is kept, and what errors say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("hub_scenarios.py")
TOKENIZER = ["tokenizer.json", "tokenizer_config.json"]
FILES = ["config.json", "generation_config.json", "model.safetensors", *TOKENIZER]

GROUPS = {
    "sound": (
        *("first", "cached", "offline", "offline_by_commit", "by_commit", "offline_partly", "branch", "sharded"),
        "no_links",
    ),
    "refused": (
        *(
            "wrong_revision",
            "path_as_revision",
            "missing",
            "missing_with_token",
            "disabled",
            "pickle_only",
            "no_config",
        ),
        *("gated", "gated_with_wrong_token", "gated_with_token", "private", "private_with_wrong_token"),
        *("private_with_token", "private_with_token_of_environment", "traversal", "missing_shard", "bad_config"),
        *("offline_not_cached", "hostile_commit", "nonsense", "error_500"),
    ),
    "faulty": (
        *("cut_short", "wrong_bytes", "wrong_bytes_once", "corrupt_in_the_cache", "corrupt_config_in_the_cache"),
        *("no_room", "disk_full", "read_only", "stalled", "down"),
    ),
    "slow": ("broken_off",),
    "push": ("push", "push_refused"),
}

# Each starts processes that talk to a server.
pytestmark = pytest.mark.slow


def run(folder: Path, *scenarios: str, **environment: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    clean |= {"HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1"}
    clean |= environment
    result = subprocess.run(
        [sys.executable, SCRIPT, folder, *scenarios],
        **{"env": clean, "capture_output": True, "text": True, "timeout": 120},
    )
    assert result.returncode == 0, result.stderr
    return {line["scenario"]: line["found"] for line in map(json.loads, result.stdout.splitlines())}


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What happened in a scenario; those of a group share a process."""
    done: dict[str, Any] = {}

    def found(scenario: str) -> Any:
        if scenario not in done:
            group = next(name for name, scenarios in GROUPS.items() if scenario in scenarios)
            done.update(run(tmp_path_factory.mktemp(group), *GROUPS[group]))
        return done[scenario]

    return found


def test_the_first_load_fetches_what_is_needed(happened: Any) -> None:
    found = happened("first")
    assert found["files"] == FILES
    assert found["fetched"] == FILES
    assert found["in_cache"]
    assert len(found["commit"]) == 40
    assert found["repo"] == "org/tied"
    assert found["warnings"] == []


def test_a_second_load_fetches_nothing(happened: Any) -> None:
    found = happened("cached")
    assert found["fetched"] == []
    assert found["requests"] == 2
    assert found["commit"] == happened("first")["commit"]


@pytest.mark.parametrize("scenario", ["offline", "offline_by_commit"])
def test_offline_asks_nothing(happened: Any, scenario: str) -> None:
    found = happened(scenario)
    assert found["requests"] == 0
    assert found["commit"] == happened("first")["commit"]
    assert found["files"] == FILES


def test_a_commit_that_is_in_the_cache_is_not_asked_for(happened: Any) -> None:
    found = happened("by_commit")
    assert found["cached"]["requests"] == 0
    assert found["cached"]["files"] == FILES
    assert found["unsure"]["fetched"] == ["tokenizer.json"]


def test_a_branch_is_another_commit(happened: Any) -> None:
    found = happened("branch")
    assert found["commit"] != found["main"] == happened("first")["commit"]
    assert found["norm"] != happened("first")["norm"]


def test_shards_are_fetched_as_the_index_says(happened: Any) -> None:
    shards = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert happened("sharded")["fetched"] == sorted([*FILES[:2], *shards, "model.safetensors.index.json", *TOKENIZER])


def test_a_cache_without_links_is_verified_too(happened: Any) -> None:
    found = happened("no_links")
    assert "error" not in found["sound"], found["sound"]
    assert "does not hold what the Hub has" in found["corrupt"]["message"]


# The scenario, and pieces of what its error says.
REFUSALS = {
    "wrong_revision": ("org/tied has no revision nowhere", "Choose a branch, tag or commit"),
    "path_as_revision": ("revision is ../../etc", "must be a branch, a tag or a commit"),
    "missing": ("org/nothing does not exist, or is private", "HF_TOKEN"),
    "missing_with_token": ("org/nothing does not exist, or the token has no access",),
    "gated": ("org/gated is gated", "Accept it on http://127.0.0.1", "HF_TOKEN"),
    "gated_with_wrong_token": ("org/gated is gated", "with an account that has access"),
    "private": ("org/private does not exist, or is private", "token="),
    "private_with_wrong_token": ("org/private does not exist, or the token has no access",),
    "disabled": ("org/disabled has been disabled",),
    "pickle_only": ("no weights in safetensors", "pytorch_model.bin, which is never opened"),
    "no_config": ("has no config.json",),
    "missing_shard": ("has no model-00002-of-00002.safetensors, which model.safetensors.index.json names",),
    "offline_not_cached": ("org/sharded at main is not in the cache", "Load it once with the network"),
    "offline_partly": ("only partly in the cache: tokenizer.json is missing", "Load it once with the network"),
    "error_500": ("does not answer", "500", "Nor can the cache be used: org/sharded at main is not in the cache"),
    "nonsense": ("org/sharded: the request failed",),
    "hostile_commit": ("the Hub says that main is commit ../../../../etc",),
    "cut_short": ("org/cut: the download of", "cut short", "Try again"),
    "no_room": ("bytes are to be downloaded", "room for 1000", "cache_dir="),
    "disk_full": ("the disk is full", "cache_dir="),
    "read_only": ("cannot be written", "Not a directory", "cache_dir="),
    "stalled": ("does not answer the request", "no progress in 0.5 seconds"),
    "broken_off": ("does not answer the download of",),
}


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=pytest.mark.slow if name == "broken_off" else ()) for name in REFUSALS]
)
def test_refused(happened: Any, scenario: str) -> None:
    found = happened(scenario)
    assert found["error"] in ("HubError", "Unreachable"), found
    assert [piece for piece in REFUSALS[scenario] if piece not in found["message"]] == [], found["message"]
    assert found["seconds"] < 30


@pytest.mark.parametrize("scenario", ["traversal", "bad_config"])
def test_what_the_hub_gives_is_not_trusted(happened: Any, scenario: str) -> None:
    found = happened(scenario)
    assert found["error"] == "CheckpointError"
    assert ("../evil.safetensors" if scenario == "traversal" else "hidden_size is -32") in found["message"]
    assert not any("evil" in name for name in found["fetched"])


@pytest.mark.parametrize("scenario", ["gated_with_token", "private_with_token", "private_with_token_of_environment"])
def test_a_token_opens(happened: Any, scenario: str) -> None:
    assert happened(scenario)["files"] == FILES


def test_what_was_cut_short_is_fetched_whole_the_next_time(happened: Any) -> None:
    assert happened("cut_short")["then"]["files"] == FILES


def test_wrong_bytes_are_refused_and_not_kept(happened: Any) -> None:
    found = happened("wrong_bytes")
    assert found["error"] == "HubError"
    assert "model.safetensors arrived with" in found["message"]
    assert "It was removed" in found["message"]
    assert len(found["warnings"]) == 1
    assert found["left"] == []
    assert found["then"]["files"] == FILES


@pytest.mark.parametrize(
    ("scenario", "part"),
    [("wrong_bytes_once", None), ("corrupt_in_the_cache", "healed"), ("corrupt_config_in_the_cache", "healed")],
)
def test_a_wrong_file_is_fetched_once_more(happened: Any, scenario: str, part: str | None) -> None:
    found = happened(scenario)[part] if part else happened(scenario)
    assert found["files"] == FILES
    assert len(found["warnings"]) == 1
    assert "is fetched once more" in found["warnings"][0]


def test_a_wrong_file_is_refused_offline(happened: Any) -> None:
    found = happened("corrupt_in_the_cache")
    assert f"{found['path']} does not hold what the Hub has" in found["refused"]["message"]
    assert "Delete the file, or load it with the network" in found["refused"]["message"]
    assert "config.json does not hold" in happened("corrupt_config_in_the_cache")["refused"]["message"]


def test_a_hub_that_is_down(happened: Any) -> None:
    found = happened("down")
    assert found["cached"]["files"] == FILES
    assert "does not answer" in found["cached"]["warnings"][0]
    assert f"Taken from the cache: commit {found['cached']['commit']}" in found["cached"]["warnings"][0]
    assert "does not answer the request" in found["not_cached"]["message"]
    assert max(found["cached"]["seconds"], found["not_cached"]["seconds"]) < 30


def test_the_environment_says_offline(tmp_path: Path) -> None:
    run(tmp_path, "first")
    found = run(tmp_path, "first", "offline_not_cached", HF_HUB_OFFLINE="1")
    assert found["first"]["files"] == FILES
    assert found["first"]["requests"] == 0
    assert found["first"]["warnings"] == []
    assert found["offline_not_cached"]["message"].startswith("org/sharded at main is not in the cache")


def test_the_environment_says_where_the_cache_is(tmp_path: Path) -> None:
    run(tmp_path, "default_cache")
    assert list((tmp_path / "home" / "hub").glob("models--org--tied/snapshots/*/model.safetensors"))


def test_two_processes_at_once(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, SCRIPT, tmp_path, "made", "first"]
    subprocess.run(command[:-1], env=environment, check=True, timeout=60)
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        lines = [json.loads(line) for line in process.communicate(timeout=120)[0].splitlines()]
        assert lines[-1]["found"]["files"] == FILES
        assert lines[-1]["found"]["warnings"] == []


def test_push(happened: Any) -> None:
    found = happened("push")
    assert found["shards"] > 1
    assert found["files"] == FILES
    assert len({found["first"], found["second"]}) == 2
    assert found["same"]
    assert found["loaded"] == found["branch"] != found["second"]
    assert found["loaded_base"] == found["base"]


def test_push_without_the_right_to_write(happened: Any) -> None:
    for message in happened("push_refused"):
        assert "org/refused: the Hub refused the creation of the repository: You need the right to write" in message
        assert "hf auth login" in message
