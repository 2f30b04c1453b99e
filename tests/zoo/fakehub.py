"""A stand-in for the Hub on 127.0.0.1, of the standard library alone, for the real client.

`Hub(root)` serves `root/owner/name` as the main branch of a repository and `root/owner/name@branch` as another. A file
`.hub.json` beside a snapshot's files may hold "gated", "private", "disabled" and the "token" that opens it.
`Hub.fault`, a function of the request that returns whether it answered, makes what goes wrong. Uploads are written to
the folders: the token "reader" may not.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPO = r"[\w.-]+/[\w.-]+"
BATCH = re.compile(rf"/({REPO})\.git/info/lfs/objects/batch")
UPLOAD = re.compile(rf"/api/models/({REPO})/(preupload|commit|branch)/([^/]+)")
API = re.compile(rf"/api/models/({REPO})(?:/revision/([^/]+)|/tree/([^/]+)(?:/.*)?)?")
FILE = re.compile(rf"/({REPO})/resolve/([^/]+)/(.+)")
CDN = re.compile(r"/cdn/([0-9a-f]{64})")


class Hub:
    """A server that runs within `with`; `url` is its address, `log` what was asked: method, path, range and token."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.log: list[tuple[str, str, str | None, str | None]] = []
        self.fault: Callable[[Any], bool] | None = None
        self.large: dict[str, Path] = {}
        self.connections: set[socket.socket] = set()
        handler = type("Handler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        # Another host name, as large files really have one: the client follows other redirects by itself.
        self.cdn = f"http://localhost:{self.server.server_address[1]}/cdn/"

    def __enter__(self) -> "Hub":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def entry(self, path: Path) -> dict[str, Any]:
        """What the Hub lists of a file."""
        content = path.read_bytes()
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry: dict[str, Any] = {"size": len(content), "oid": oid}
        if path.suffix in (".safetensors", ".bin", ".npz"):
            digest = hashlib.sha256(content).hexdigest()
            self.large[digest] = path
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
        return entry

    def commit(self, folder: Path) -> str:
        listed = [(name, self.entry(folder / name)["oid"]) for name in names(folder)]
        return hashlib.sha1(repr(listed).encode()).hexdigest()

    def branch(self, repo: str, name: str) -> Path:
        return self.root / (repo if name == "main" else f"{repo}@{name}")

    def branches(self, repo: str) -> list[Path]:
        base = self.root / repo
        return [path for path in (base, *base.parent.glob(f"{base.name}@*")) if path.is_dir()]

    def find(self, repo: str, revision: str) -> tuple[Path, str] | None:
        for folder in self.branches(repo):
            commit = self.commit(folder)
            if revision == commit or folder == self.branch(repo, revision):
                return folder, commit
        return None

    def settings(self, repo: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for folder in self.branches(repo):
            if (folder / ".hub.json").exists():
                found |= json.loads((folder / ".hub.json").read_text())
        return found


def names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".hub.json":
            yield path.relative_to(folder).as_posix()


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def setup(self) -> None:
        super().setup()
        self.hub.connections.add(self.connection)

    def finish(self) -> None:
        self.hub.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: Any = b"", **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if not isinstance(body, bytes):
            headers.setdefault("Content_Type", "application/json")
        for name, value in {"Content_Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, code: str = "", message: str = "", **headers: str) -> None:
        if code:
            headers["X_Error_Code"] = code
        self.send(status, {"error": message}, X_Error_Message=message, **headers)

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else self.read_chunks()
        self.hub.log.append((self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if self.hub.fault is not None and self.hub.fault(self):
            return
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if found := CDN.fullmatch(path):
            self.large_file(found[1])
        elif found := BATCH.fullmatch(path):
            self.batch()
        elif path == "/api/agent-harnesses":
            # The client asks for these once a day.
            self.send(200, {"standardEnvVars": [], "harnesses": {}})
        elif path == "/api/repos/create":
            self.create()
        elif found := UPLOAD.fullmatch(path):
            self.upload(*found.groups())
        elif found := API.fullmatch(path):
            self.about(found[1], found[2] or "main", found[3])
        elif found := FILE.fullmatch(path):
            self.file(*found.groups())
        else:
            self.refuse(404, message="Not Found")

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def read_chunks(self) -> bytes:
        content = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return content

    @property
    def token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def opened(self, repo: str, revision: str) -> tuple[Path, str] | None:
        """Folder and commit, or None where the request has been refused."""
        settings = self.hub.settings(repo)
        if not self.hub.branches(repo) or (settings.get("private") and self.token != settings.get("token")):
            # To the anonymous the Hub does not say whether there is such a repository.
            self.refuse(404 if self.token else 401, "RepoNotFound", "Repository not found")
        elif settings.get("disabled"):
            self.refuse(403, message="Access to this resource is disabled.")
        elif found := self.hub.find(repo, revision):
            return found
        else:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def about(self, repo: str, revision: str, tree: str | None) -> None:
        found = self.opened(repo, tree or revision)
        if found is None:
            return
        folder, commit = found
        if tree:
            self.send(200, [{"type": "file", "path": n, **self.hub.entry(folder / n)} for n in names(folder)])
        else:
            siblings = [{"rfilename": name} for name in names(folder)]
            self.send(200, {"id": repo, "sha": commit, "private": False, "tags": [], "siblings": siblings})

    def file(self, repo: str, revision: str, name: str) -> None:
        found = self.opened(repo, revision)
        if found is None:
            return
        folder, commit = found
        settings = self.hub.settings(repo)
        if settings.get("gated") and self.token != settings.get("token"):
            self.refuse(403 if self.token else 401, "GatedRepo", f"Access to {repo} is restricted.")
        elif name not in set(names(folder)):
            self.refuse(404, "EntryNotFound", "Entry not found", X_Repo_Commit=commit)
        else:
            entry = self.hub.entry(folder / name)
            headers = {"X_Repo_Commit": commit, "ETag": f'"{entry["oid"]}"'}
            if "lfs" in entry:
                digest = entry["lfs"]["oid"]
                headers |= {"X_Linked_Etag": f'"{digest}"', "X_Linked_Size": str(entry["size"])}
                self.send(302, Location=self.hub.cdn + digest, **headers)
            else:
                self.content(folder / name, **headers)

    def large_file(self, digest: str) -> None:
        path = self.hub.large.get(digest)
        if self.command == "PUT":
            self.hub.large[digest] = self.hub.root / f".uploaded-{digest}"
            self.hub.large[digest].write_bytes(self.body)
            self.send(200)
        elif path is None or not path.exists():
            self.refuse(404)
        else:
            self.content(path, ETag=f'"{digest}"')

    def content(self, path: Path, **headers: str) -> None:
        content = path.read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not found:
            self.send(200, content, **headers)
            return
        start, end = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
        if start >= len(content):
            self.send(416, Content_Range=f"bytes */{len(content)}")
        else:
            span = f"bytes {start}-{end}/{len(content)}"
            self.send(206, content[start : end + 1], Content_Range=span, **headers)

    def writer(self) -> bool:
        if self.token == "reader" or not self.token:
            self.refuse(403 if self.token else 401, message="You need the right to write.")
            return False
        return True

    def create(self) -> None:
        asked = json.loads(self.body)
        folder = self.hub.root / asked["organization"] / asked["name"]
        if self.writer():
            existed = folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            url = f"{self.hub.url}/{asked['organization']}/{asked['name']}"
            self.send(409 if existed else 200, {"url": url})

    def batch(self) -> None:
        objects = [
            {**asked, "actions": {"upload": {"href": self.hub.cdn + asked["oid"]}}}
            for asked in json.loads(self.body)["objects"]
        ]
        self.send(200, {"transfer": "basic", "objects": objects})

    def upload(self, repo: str, what: str, revision: str) -> None:
        if not self.writer():
            return
        folder = self.hub.branch(repo, revision)
        if what == "branch":
            shutil.copytree(self.hub.branch(repo, "main"), folder, dirs_exist_ok=True)
            self.send(200, {})
        elif what == "preupload":
            files = [
                {"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular"}
                for f in json.loads(self.body)["files"]
            ]
            self.send(200, {"files": [{"shouldIgnore": False, "oid": None, **file} for file in files]})
        else:
            for line in self.body.splitlines():
                operation = json.loads(line)
                self.apply(folder, operation["key"], operation["value"])
            commit = self.hub.commit(folder)
            self.send(200, {"commitUrl": f"{self.hub.url}/{repo}/commit/{commit}", "commitOid": commit})

    def apply(self, folder: Path, key: str, value: dict[str, Any]) -> None:
        if key == "file":
            (folder / value["path"]).write_bytes(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            shutil.copy(self.hub.large[value["oid"]], folder / value["path"])
        elif key == "deletedFile":
            os.remove(folder / value["path"])
