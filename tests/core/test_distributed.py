"""Runs of real processes on loopback: the results of one process, one writer, one end; and the launcher."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import shardes
from shardes.configuration import checksum
from shardes.distributed.launching import _free_port

from . import many_processes

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def start(processes, devices, *command):
    options = ["--processes", str(processes), "--devices", str(devices)]
    return subprocess.Popen(
        [sys.executable, "-m", "shardes.distributed", *options, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(processes, devices, *command):
    """The exit code, the lines of every process, and stderr."""
    process = start(processes, devices, *command)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    lines = [[] for _ in range(processes)]
    for line in out.splitlines():
        number, rest = re.fullmatch(r"\[(\d+)\] (.*)", line).groups()
        if not rest.startswith("[Gloo]"):
            lines[int(number)].append(rest)
    return process.returncode, lines, err


@pytest.fixture(scope="module", params=[(2, 4), (4, 2)], ids=["2x4", "4x2"])
def found(request, tmp_path_factory):
    """What every process has printed, and the folder of process 0."""
    folder = tmp_path_factory.mktemp("run")
    code, lines, err = run(*request.param, "-m", "tests.core.many_processes", str(folder))
    assert code == 0, err
    return lines, folder


def named(lines, name):
    return [line.split(" ", 1)[1] for line in lines if line.split()[0] == name]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same of this process, which has eight devices."""
    steps = {strategy: many_processes.stepped(strategy) for strategy in many_processes.STRATEGIES}
    state, history = many_processes.logged(tmp_path_factory.mktemp("alone"))
    return {
        "stepped": [f"{name} {many_processes.of_bytes(f)} {checksum(s)}" for name, (f, s) in steps.items()],
        "inputs": [f"{name} {many_processes.of_bytes(many_processes.own_inputs(name))}" for name in steps],
        "logged": [f"{checksum(state)} {many_processes.of_bytes(history.mean)}"],
    }


@pytest.mark.parametrize("name", ["stepped", "inputs", "logged"])
def test_many_processes_are_bitwise_one(found, alone, name):
    for lines in found[0]:
        assert named(lines, name) == alone[name]


def test_the_members_are_dealt_out(found):
    members = [int(member) for lines in found[0] for member in named(lines, "members")[0].split()]
    assert members == list(range(30))


def test_one_process_writes(found):
    _, folder = found
    assert not (folder / "not here").exists()
    generations = [json.loads(line)["generation"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert generations == list(range(6))
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["3", "4", "6"]
    es = many_processes.make()
    for path, name in (("replay", "logged"), ("by hand", "logged_by_hand")):
        replayed = shardes.replay(many_processes.make_params(), shardes.ReplayLog(folder / path, es))
        assert {named(lines, name)[0].split()[0] for lines in found[0]} == {checksum(replayed)}


def test_they_agree_on_the_placement_and_the_end(found):
    lines, _ = found
    assert len({named(one, "auto")[0] for one in lines}) == 1
    ends = [named(one, "ended")[0].split(maxsplit=2) for one in lines]
    assert len({(generation, stopped) for generation, stopped, _ in ends}) == 1
    assert int(ends[0][0]) <= 8
    assert [why for _, _, why in ends] == ["another process"] * (len(lines) - 1) + ["callback"]


def test_a_mismatch_is_refused_and_named(found):
    for process, lines in enumerate(found[0]):
        lr, key, params = named(lines, "refused")
        assert lr == (
            f"lr of process 1 is not that of process 0; here, in process {process}, it is {0.1 + process}. Every "
            "process must be given the same."
        )
        assert key.startswith("key of process 1 is not that of process 0")
        assert params.startswith("params of process 1 is not that of process 0")


LONG = """
    import os, signal, sys, jax, jax.numpy as jnp, shardes
    from shardes.configuration import checksum
    if sys.argv[2] != "alone":
        shardes.distributed.initialize(heartbeat_timeout_seconds=10)
    es = shardes.ShardedES(shardes.Mirrored(shardes.SeedRegenerated()), 12, sigma=0.1, lr=0.1, deterministic=True)
    checkpoint = shardes.callbacks.Checkpoint(sys.argv[1], every=2)
    state = checkpoint.restore(es, es.init(jax.random.key(0), {"w": jnp.zeros(5)}))
    begun = int(state.generation)
    def die(generation):
        if sys.argv[2] == "die" and generation.number == 7 and jax.process_index() == jax.process_count() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    state, _ = shardes.fit(es, state, lambda params: jnp.sum((params["w"] - 1) ** 2), generations=12,
                           callbacks=[checkpoint, die])
    print(begun, checksum(state))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(LONG))
    return str(path)


def test_a_process_that_is_killed_ends_all_and_fewer_go_on(tmp_path, script):
    """Three are killed by the death of one, without the launcher's help; two, and then one, end as nobody disturbed."""
    with_help = start(3, 1, script, str(tmp_path / "helped"), "die")
    _, err = with_help.communicate(timeout=120)
    assert with_help.returncode == 128 + signal.SIGKILL
    assert "process 2 ended with signal SIGKILL, and the others are ended. Restart all from the last checkpoint." in err
    port = _free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(tmp_path / "alone"), "die"],
            env={
                **os.environ,
                "XLA_FLAGS": "",
                "SHARDES_PROCESSES": "3",
                "SHARDES_PROCESS_ID": str(i),
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(3)
    ]
    try:
        processes[2].wait(timeout=120)
        died = time.monotonic()
        told = [process.communicate(timeout=60)[1] for process in processes[:2]]
        assert time.monotonic() - died < 60
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for text in told:
        assert "Restart all from the last checkpoint" in text
    _, whole, _ = run(1, 8, script, str(tmp_path / "whole"), "live")
    checksum = whole[0][-1].split()[1]
    for folder, processes in (("helped", 2), ("alone", 1)):
        code, lines, err = run(processes, 2, script, str(tmp_path / folder), "live")
        assert code == 0, err
        for one in lines:
            begun, found = one[-1].split()
            assert found == checksum
            assert 4 <= int(begun) <= 8


def python(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_the_launcher_hands_on_output_arguments_and_places(tmp_path):
    script = python(
        tmp_path,
        """
        import os, sys
        print(sys.argv[1:], os.environ["SHARDES_PROCESSES"], os.environ["SHARDES_PROCESS_ID"], os.environ["XLA_FLAGS"])
        print("to stderr", file=sys.stderr)
        sys.stdout.write("no end of line")
        """,
    )
    code, lines, err = run(3, 2, script, "--flag", "value")
    assert code == 0
    for i, found in enumerate(lines):
        assert found == [f"['--flag', 'value'] 3 {i} --xla_force_host_platform_device_count=2", "no end of line"]
    assert sorted(err.splitlines()) == [f"[{i}] to stderr" for i in range(3)]


@pytest.mark.parametrize(
    ("failing", "code", "meaning"),
    [("sys.exit(7)", 7, "exit code 7"), ("os.kill(os.getpid(), 11)", 139, "signal SIGSEGV")],
)
def test_the_first_that_fails_ends_all_with_its_code(tmp_path, failing, code, meaning):
    script = python(
        tmp_path,
        f"""
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.environ["SHARDES_PROCESS_ID"] == "1":
            {failing}
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, flush=True)
        time.sleep(600)
        """,
    )
    found, lines, err = run(2, 1, script)
    assert found == code
    assert f"process 1 ended with {meaning}, and the others are ended" in err
    for (child,) in filter(None, lines):
        assert not is_running(int(child))


def is_running(pid):
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    return False


SLEEP = """
    import os, signal, time
    signal.signal(signal.SIGINT, lambda *_: (print("SIGINT", flush=True), os._exit(3)))
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


def pids_of(process, count):
    return [int(process.stdout.readline().split()[1]) for _ in range(count)]


def test_ctrl_c_is_handed_on(tmp_path):
    process = start(2, 1, python(tmp_path, SLEEP))
    pids_of(process, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert sorted(out.split()) == ["SIGINT", "SIGINT", "[0]", "[1]"]
    assert process.returncode == 3
    assert "Restart" not in err


def test_a_second_ctrl_c_kills(tmp_path):
    process = start(2, 1, python(tmp_path, SLEEP.replace("os._exit(3)", "time.sleep(600)")))
    pids = pids_of(process, 2)
    process.send_signal(signal.SIGINT)
    for _ in pids:
        assert process.stdout.readline().endswith("SIGINT\n")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert not any(map(is_running, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_nothing_runs_on_when_the_launcher_is_killed(tmp_path):
    process = start(2, 1, python(tmp_path, SLEEP))
    pids = pids_of(process, 2)
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("arguments", [["--processes", "0", "x.py"], ["--devices", "many", "x.py"], []])
def test_wrong_usage_is_explained(arguments):
    process = subprocess.run(
        [sys.executable, "-m", "shardes.distributed", *arguments], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 2
    assert "usage: python -m shardes.distributed" in process.stderr


def test_initialize_says_what_is_missing():
    script = "import shardes; shardes.distributed.initialize()"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "ValueError: No cluster is detected" in process.stderr
