"""Snapshots that tests load: the tiny checkpoints, the faulty ones, and ways to make more."""

import json
import re
import shutil
import struct
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKPOINTS = HERE / "checkpoints"
BAD = HERE / "bad"
GOOD = BAD / "good-base"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


def copy(source: Path, folder: Path) -> Path:
    shutil.copytree(source, folder)
    return folder


def split(content: bytes) -> tuple[dict, bytes]:
    """Header and data of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(header: dict | bytes, data: bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


STATUS = Path("/proc/self/status")
needs_peak = pytest.mark.skipif(not STATUS.exists(), reason="needs /proc")


def peak() -> int:
    """The most memory that this process has had, in bytes. That of getrusage counts the process it was forked from."""
    found = re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])
