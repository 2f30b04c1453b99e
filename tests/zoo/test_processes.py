"""In a run of many processes one downloads, the others wait, and all of them get the same or the same error."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .fakehub import Hub
from .snapshots import CHECKPOINTS

SCRIPT = """
import json, sys
import jax
coordinator, index, cache, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
jax.distributed.initialize(coordinator, 2, index, initialization_timeout=60)
from shardes import zoo
for name in names:
    try:
        model = zoo.load(name, cache_dir=cache)
        print(json.dumps({"commit": model.source.commit, "norm": float(model.params["norm"][0])}), flush=True)
    except zoo.HubError as error:
        print(json.dumps({"error": str(error)}), flush=True)
jax.distributed.shutdown()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(hub: Hub, caches: list[Path], *names: str) -> list[list[dict[str, Any]]]:
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }
    coordinator = f"127.0.0.1:{free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, coordinator, str(index), str(cache), *names],
            **{"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
        )
        for index, cache in enumerate(caches)
    ]
    found = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            found.append([json.loads(line) for line in out.splitlines()])
    finally:
        for process in processes:
            process.kill()
    return found


@pytest.fixture
def hub(tmp_path: Path) -> Any:
    shutil.copytree(CHECKPOINTS / "qwen2-tiny-tied", tmp_path / "hub" / "org" / "tied")
    with Hub(tmp_path / "hub") as running:
        yield running


def fetched(hub: Hub) -> int:
    return sum(method == "GET" and path.startswith("/cdn/") for method, path, *_ in hub.log)


@pytest.mark.slow
def test_one_downloads_for_all(hub: Hub, tmp_path: Path) -> None:
    first, second = run(hub, [tmp_path / "cache"] * 2, "org/tied", "org/nothing", "org/tied")
    assert fetched(hub) == 1
    assert first[0] == second[0] == first[2] == second[2]
    assert "org/nothing does not exist" in first[1]["error"]
    assert second[1]["error"] == f"Process 0 failed to fetch for all: {first[1]['error']}"


@pytest.mark.slow
def test_each_disk_gets_the_same_commit(hub: Hub, tmp_path: Path) -> None:
    first, second = run(hub, [tmp_path / "one", tmp_path / "two"], "org/tied")
    assert fetched(hub) == 2
    assert first == second
