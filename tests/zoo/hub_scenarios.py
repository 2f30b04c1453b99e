"""What happens with the real client and a Hub on loopback, one scenario a function.

Run as a script, in a process of its own, since the client reads the address of the Hub when it is imported:

    python hub_scenarios.py FOLDER SCENARIO...     prints a line of JSON a scenario
"""

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from fakehub import Hub  # noqa: E402

WEIGHTS = "model.safetensors"


def make_repos(root: Path) -> None:
    tied, sharded = HERE / "checkpoints" / "qwen2-tiny-tied", HERE / "checkpoints" / "qwen2-tiny-untied-sharded"
    for name in ("tied", "gated", "private", "disabled", "cut", "wrong", "healed", "corrupt", "full", "half"):
        shutil.copytree(tied, root / "org" / name)
        (root / "org" / name / "pytorch_model.bin").write_bytes(b"a pickle, never fetched")
        (root / "org" / name / "README.md").write_text("never fetched")
    (root / "org" / "gated" / ".hub.json").write_text('{"gated": true, "token": "right"}')
    (root / "org" / "private" / ".hub.json").write_text('{"private": true, "token": "right"}')
    (root / "org" / "disabled" / ".hub.json").write_text('{"disabled": true}')
    shutil.copytree(sharded, root / "org" / "sharded")
    shutil.copytree(HERE / "checkpoints" / "qwen2-tiny-odd", root / "org" / "tied@other")
    shutil.copytree(HERE / "bad" / "pickle-only", root / "org" / "pickle")
    shutil.copytree(HERE / "bad" / "index-path-traversal", root / "org" / "traversal")
    shutil.copytree(HERE / "bad" / "index-missing-shard", root / "org" / "noshard")
    shutil.copytree(HERE / "bad" / "config-missing", root / "org" / "noconfig")
    shutil.copytree(HERE / "bad" / "config-negative-size", root / "org" / "bad")


class Scene:
    """A Hub, a cache, and what became of a load."""

    def __init__(self, hub: Hub, cache: Path) -> None:
        self.hub = hub
        self.cache = cache

    def load(self, name: str, **options: Any) -> dict[str, Any]:
        from shardes import zoo

        options.setdefault("cache_dir", self.cache)
        del self.hub.log[:]
        found: dict[str, Any] = {}
        started = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model = zoo.load(name, **options)
            except zoo.ZooError as error:
                found |= {"error": type(error).__name__.lstrip("_"), "message": str(error)}
            else:
                commit, folder = model.source.commit, model.source.folder
                found |= {"commit": commit, "in_cache": folder.is_relative_to(self.cache), "repo": model.source.repo_id}
                found["files"] = sorted(path.name for path in folder.iterdir())
                found["norm"] = float(model.params["norm"][0])
        found["warnings"] = [str(entry.message) for entry in caught]
        found["seconds"] = time.monotonic() - started
        found["requests"] = len(self.hub.log)
        found["bodies"] = sum(command == "GET" and not path.startswith("/api/") for command, path, *_ in self.hub.log)
        found["fetched"] = sorted({path.split("/")[-1] for _, path, *_ in self.hub.log if "/resolve/" in path})
        return found

    def file(self, repo: str, name: str) -> Path:
        (path,) = self.cache.glob(f"models--org--{repo}/snapshots/*/{name}")
        return path

    @contextlib.contextmanager
    def fault(self, fault: Callable[[Any], bool]) -> Iterator[None]:
        self.hub.fault = fault
        try:
            yield
        finally:
            self.hub.fault = None


def made(scene: Scene) -> Any:
    """Nothing but the repositories."""
    return scene.hub.url


def default_cache(scene: Scene) -> Any:
    return scene.load("org/tied", cache_dir=None)


def first(scene: Scene) -> Any:
    return scene.load("org/tied")


def cached(scene: Scene) -> Any:
    scene.load("org/tied")
    return scene.load("org/tied")


def offline(scene: Scene) -> Any:
    scene.load("org/tied")
    return scene.load("org/tied", offline=True)


def offline_by_commit(scene: Scene) -> Any:
    commit = scene.load("org/tied")["commit"]
    return scene.load("org/tied", offline=True, revision=commit) | {"asked": commit}


def by_commit(scene: Scene) -> Any:
    commit = scene.load("org/tied")["commit"]
    cached = scene.load("org/tied", revision=commit)
    (scene.file("tied", "config.json").parents[2] / "trees" / f"{commit}.json").unlink()
    import huggingface_hub._tree_cache as client

    client._IN_MEMORY_TREE_CACHE.clear()
    scene.file("tied", "tokenizer.json").unlink()
    return {"cached": cached, "unsure": scene.load("org/tied", revision=commit)}


def offline_not_cached(scene: Scene) -> Any:
    return scene.load("org/sharded", offline=True, cache_dir=scene.cache / "empty")


def offline_partly(scene: Scene) -> Any:
    scene.load("org/half")
    scene.file("half", "tokenizer.json").unlink()
    return scene.load("org/half", offline=True)


def branch(scene: Scene) -> Any:
    return scene.load("org/tied", revision="other") | {"main": scene.load("org/tied")["commit"]}


def sharded(scene: Scene) -> Any:
    return scene.load("org/sharded")


def wrong_revision(scene: Scene) -> Any:
    return scene.load("org/tied", revision="nowhere")


def path_as_revision(scene: Scene) -> Any:
    return scene.load("org/tied", revision="../../etc")


def missing(scene: Scene) -> Any:
    return scene.load("org/nothing")


def missing_with_token(scene: Scene) -> Any:
    return scene.load("org/nothing", token="some")


def gated(scene: Scene) -> Any:
    return scene.load("org/gated")


def gated_with_wrong_token(scene: Scene) -> Any:
    return scene.load("org/gated", token="wrong")


def gated_with_token(scene: Scene) -> Any:
    return scene.load("org/gated", token="right")


def private(scene: Scene) -> Any:
    return scene.load("org/private")


def private_with_wrong_token(scene: Scene) -> Any:
    return scene.load("org/private", token="wrong")


def private_with_token(scene: Scene) -> Any:
    return scene.load("org/private", token="right")


def private_with_token_of_environment(scene: Scene) -> Any:
    os.environ["HF_TOKEN"] = "right"
    try:
        return scene.load("org/private", cache_dir=scene.cache / "environment")
    finally:
        del os.environ["HF_TOKEN"]


def disabled(scene: Scene) -> Any:
    return scene.load("org/disabled")


def pickle_only(scene: Scene) -> Any:
    return scene.load("org/pickle")


def no_config(scene: Scene) -> Any:
    return scene.load("org/noconfig")


def traversal(scene: Scene) -> Any:
    return scene.load("org/traversal")


def missing_shard(scene: Scene) -> Any:
    return scene.load("org/noshard")


def bad_config(scene: Scene) -> Any:
    return scene.load("org/bad")


def weights_of(handler: Any) -> bool:
    return handler.command == "GET" and (handler.path.startswith("/cdn/") or handler.path.endswith(WEIGHTS))


def content_of(scene: Scene, repo: str) -> bytes:
    return (Path(scene.hub.root) / "org" / repo / WEIGHTS).read_bytes()


def cut_short(scene: Scene) -> Any:
    """Fewer bytes than the Hub lists, called complete."""
    body = content_of(scene, "cut")[:-1000]

    def fault(handler: Any) -> bool:
        if weights_of(handler):
            handler.send(200, body, ETag='"x"')
        return weights_of(handler)

    with scene.fault(fault):
        failed = scene.load("org/cut")
    return failed | {"then": scene.load("org/cut")}


def broken_off(scene: Scene) -> Any:
    """The connection ends in the middle, every time."""

    def fault(handler: Any) -> bool:
        if weights_of(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content_of(scene, "cut"))))
            handler.end_headers()
            handler.close_connection = True
        return weights_of(handler)

    with scene.fault(fault):
        return scene.load("org/cut", cache_dir=scene.cache / "broken")


def altered(scene: Scene, repo: str, times: int) -> Callable[[Any], bool]:
    body = bytearray(content_of(scene, repo))
    body[-1] ^= 1
    left = [times]

    def fault(handler: Any) -> bool:
        if weights_of(handler) and left[0] > 0:
            left[0] -= 1
            handler.send(200, bytes(body), ETag='"x"')
            return True
        return False

    return fault


def wrong_bytes(scene: Scene) -> Any:
    with scene.fault(altered(scene, "wrong", 100)):
        found = scene.load("org/wrong")
    left = [str(path) for path in scene.cache.glob(f"models--org--wrong/**/{WEIGHTS}")]
    return found | {"left": left, "then": scene.load("org/wrong")}


def wrong_bytes_once(scene: Scene) -> Any:
    with scene.fault(altered(scene, "healed", 1)):
        return scene.load("org/healed")


def corrupt_in_the_cache(scene: Scene) -> Any:
    scene.load("org/corrupt")
    path = scene.file("corrupt", WEIGHTS)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.resolve().write_bytes(content)
    refused = scene.load("org/corrupt", offline=True)
    return {"refused": refused, "path": str(path), "healed": scene.load("org/corrupt")}


def corrupt_config_in_the_cache(scene: Scene) -> Any:
    scene.load("org/corrupt")
    path = scene.file("corrupt", "config.json")
    path.resolve().write_bytes(path.read_bytes() + b" ")
    return {"refused": scene.load("org/corrupt", offline=True), "healed": scene.load("org/corrupt")}


def no_links(scene: Scene) -> Any:
    """A cache without links, as on some systems: hashes come from its list of the repository."""
    scene.load("org/half")
    for name in ("config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        path = scene.file("half", name)
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    sound = scene.load("org/half", offline=True)
    path = scene.file("half", WEIGHTS)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    return {"sound": sound, "corrupt": scene.load("org/half", offline=True)}


def error_500(scene: Scene) -> Any:
    def fault(handler: Any) -> bool:
        handler.send(500, b"out of order")
        return True

    with scene.fault(fault):
        return scene.load("org/sharded", cache_dir=scene.cache / "empty")


def nonsense(scene: Scene) -> Any:
    def fault(handler: Any) -> bool:
        handler.send(200, b"<html>log in to this network first</html>")
        return True

    with scene.fault(fault):
        return scene.load("org/sharded", cache_dir=scene.cache / "empty")


def hostile_commit(scene: Scene) -> Any:
    def fault(handler: Any) -> bool:
        handler.send(200, {"id": "org/tied", "sha": "../../../../etc", "siblings": []})
        return True

    with scene.fault(fault):
        return scene.load("org/tied")


def stalled(scene: Scene) -> Any:
    from shardes.zoo.hub import downloading as hub

    patience, hub._PATIENCE = hub._PATIENCE, 0.5
    ended = threading.Event()

    def fault(handler: Any) -> bool:
        ended.wait(30)
        handler.close_connection = True
        return True

    try:
        with scene.fault(fault):
            return scene.load("org/sharded", cache_dir=scene.cache / "empty")
    finally:
        ended.set()
        hub._PATIENCE = patience


def no_room(scene: Scene) -> Any:
    usage = shutil.disk_usage
    shutil.disk_usage = lambda path: usage(path)._replace(free=1000)
    try:
        return scene.load("org/full")
    finally:
        shutil.disk_usage = usage


FULL = """
import errno, os
import huggingface_hub.file_download as client
def write(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
client.http_get = write
"""


def disk_full(scene: Scene) -> Any:
    """Of the process that writes, which runs this file first."""
    (scene.cache / "site").mkdir(parents=True, exist_ok=True)
    (scene.cache / "site" / "sitecustomize.py").write_text(FULL)
    os.environ["PYTHONPATH"] = str(scene.cache / "site")
    try:
        return scene.load("org/full")
    finally:
        del os.environ["PYTHONPATH"]


def read_only(scene: Scene) -> Any:
    place = scene.cache / "a file"
    scene.cache.mkdir(exist_ok=True)
    place.write_text("")
    return scene.load("org/full", cache_dir=place)


def push(scene: Scene) -> Any:
    """To a new repository, then again in one file where there were several, then to a branch."""
    import jax

    from shardes import zoo

    model = zoo.load("org/tied", cache_dir=scene.cache)
    found: dict[str, Any] = {"base": f"org/tied@{model.source.commit}"}
    pushed = Path(scene.hub.root) / "org" / "pushed"
    found["first"] = zoo.push(model, model.params, "org/pushed", token="writer", max_shard_size=50_000)
    found["shards"] = len(list(pushed.glob("model-*.safetensors")))
    zeros = jax.tree.map(lambda leaf: 0 * leaf, model.params)
    found["second"] = zoo.push(model, zeros, "org/pushed", token="writer", commit_message="zeros")
    found["files"] = sorted(path.name for path in pushed.iterdir())
    found["branch"] = zoo.push(model, model.params, "org/pushed", token="writer", revision="other")
    loaded = zoo.load("org/pushed", revision="other", cache_dir=scene.cache)
    pairs = zip(jax.tree.leaves(loaded.params), jax.tree.leaves(model.params), strict=True)
    found["same"] = all(bool((one == other).all()) for one, other in pairs)
    found["loaded"] = loaded.source.commit
    found["loaded_base"] = zoo.load(Path(f"{pushed}@other")).source.base
    return found


def push_refused(scene: Scene) -> Any:
    from shardes import zoo

    model = zoo.load("org/tied", cache_dir=scene.cache)
    messages = []
    for token in ("reader", False):
        try:
            zoo.push(model, model.params, "org/refused", token=token)
        except zoo.HubError as error:
            messages.append(str(error))
    return messages


def down(scene: Scene) -> Any:
    """The last of a process: its Hub goes away."""
    scene.load("org/tied")
    scene.hub.__exit__()
    return {"cached": scene.load("org/tied"), "not_cached": scene.load("org/sharded", cache_dir=scene.cache / "none")}


def main() -> None:
    folder, scenarios = Path(sys.argv[1]), sys.argv[2:]
    root = folder / "hub"
    if not root.exists():
        make_repos(root)
    with Hub(root) as hub:
        os.environ["HF_ENDPOINT"] = hub.url
        scene = Scene(hub, folder / "cache")
        for name in scenarios:
            print(json.dumps({"scenario": name} | {"found": globals()[name](scene)}), flush=True)


if __name__ == "__main__":
    main()
