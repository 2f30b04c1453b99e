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
        "whole": [many_processes.of_bytes(many_processes.whole())],
        "logged": [f"{checksum(state)} {many_processes.of_bytes(history.mean)}"],
    }


@pytest.mark.parametrize("name", ["stepped", "inputs", "whole", "logged"])
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
    for one in lines:
        assert named(one, "measured") == ['how="auto" takes "A", which is 2.00 times as fast as "B" here']
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
    shardes.distributed.initialize(heartbeat_timeout_seconds=5)
    es = shardes.ShardedES(shardes.Mirrored(shardes.SeedRegenerated()), 12, sigma=0.1, lr=0.1, deterministic=True)
    checkpoint = shardes.callbacks.Checkpoint(sys.argv[1], every=2)
    state = checkpoint.restore(es, es.init(jax.random.key(0), {"w": jnp.zeros(5)}))
    begun = int(state.generation)
    def die(generation):
        if generation.number == 3:
            print("going", flush=True)
        if generation.number == 7 and sys.argv[2:3] == [str(jax.process_index())]:
            os.kill(os.getpid(), int(sys.argv[3]))
    state, _ = shardes.fit(es, state, lambda params: jnp.sum((params["w"] - 1) ** 2), generations=12,
                           callbacks=[checkpoint, die])
    print(begun, checksum(state))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The checksum at the end of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    code, (lines,), err = run(1, 8, script_of(folder, LONG), str(folder / "run"))
    assert code == 0, err
    return lines[-1].split()[1]


def test_the_launcher_ends_all_when_one_is_killed_and_fewer_go_on(tmp_path, whole):
    script = script_of(tmp_path, LONG)
    process = start(3, 1, script, str(tmp_path / "run"), "2", "9")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGKILL
    assert "process 2 ended with signal SIGKILL, and the others are ended. Restart all from the last checkpoint." in err
    goes_on(2, script, tmp_path / "run", whole)


@pytest.mark.parametrize(
    ("lost", "received"), [(0, signal.SIGKILL), (2, signal.SIGKILL), (2, signal.SIGSTOP)], ids=lambda value: str(value)
)
def test_all_end_by_themselves_when_one_is_lost_and_one_goes_on(tmp_path, whole, lost, received):
    """Processes that no launcher ends say what to do, also where JAX aborts them, as it does when process 0 is gone."""
    script = script_of(tmp_path, LONG)
    address = f"127.0.0.1:{_free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(tmp_path / "run"), str(lost), str(int(received))],
            env={
                **os.environ,
                "XLA_FLAGS": "",
                "SHARDES_PROCESSES": "3",
                "SHARDES_PROCESS_ID": str(i),
                "JAX_COORDINATOR_ADDRESS": address,
                "JAX_COORDINATOR_BIND_ADDRESS": address,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(3)
    ]
    try:
        ends = [processes[i].communicate(timeout=60)[1] for i in range(3) if i != lost]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for text in ends:
        assert "Restart all from the last checkpoint" in text
    assert {process.returncode for process in processes} <= {-signal.SIGKILL, 75, -signal.SIGABRT}
    goes_on(1, script, tmp_path / "run", whole)


def goes_on(processes, script, folder, whole):
    code, lines, err = run(processes, 2, script, str(folder))
    assert code == 0, err
    for one in lines:
        begun, found = one[-1].split()
        assert found == whole
        assert 4 <= int(begun) <= 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_all_save_and_end_when_told_to(tmp_path, whole, number):
    script = script_of(tmp_path, LONG.replace("generations=12", "generations=10**6"))
    process = start(2, 2, script, str(tmp_path / "run"))
    while "going" not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    last = max(int(path.name) for path in (tmp_path / "run").iterdir())
    code, lines, err = run(1, 2, script_of(tmp_path, LONG.replace("=12", f"={last + 1}")), str(tmp_path / "run"))
    assert code == 0, err
    assert int(lines[0][-1].split()[0]) == last


def script_of(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_the_launcher_hands_on_output_arguments_and_places(tmp_path):
    script = script_of(
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
    script = script_of(
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
    process = start(2, 1, script_of(tmp_path, SLEEP))
    pids_of(process, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert sorted(out.split()) == ["SIGINT", "SIGINT", "[0]", "[1]"]
    assert process.returncode == 3
    assert "Restart" not in err


def test_a_second_ctrl_c_kills(tmp_path):
    process = start(2, 1, script_of(tmp_path, SLEEP.replace("os._exit(3)", "time.sleep(600)")))
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
    process = start(2, 1, script_of(tmp_path, SLEEP))
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


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [
        ("os.abort()", -signal.SIGABRT, True),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, True),
        # JAX's service of preemptions would keep this signal for itself.
        ("os.kill(os.getpid(), 15); time.sleep(20)", -signal.SIGTERM, True),
        ("raise KeyError", 1, False),
        ("raise shardes.distributed.ProcessLostError", 75, False),
        ("raise jax.errors.JaxRuntimeError('UNAVAILABLE: connection closed')", 75, False),
        ("raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: out of memory')", 1, False),
        ("raise ValueError('[external/gloo/transport] Gloo all-reduce failed')", 75, False),
        ("sys.exit(3)", 3, False),
        ("pass", 0, False),
    ],
)
def test_how_a_process_ends_is_said(tmp_path, ending, code, told):
    """Its exit code, for who starts processes; and for a person, that it was cut off."""
    script = script_of(
        tmp_path,
        f"""
        import os, sys, time, jax, shardes
        shardes.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]), shutdown_timeout_seconds=30)
        jax.devices()
        {ending}
        """,
    )
    address = f"127.0.0.1:{_free_port()}"
    processes = [
        subprocess.Popen([sys.executable, script, address, str(i)], stderr=subprocess.PIPE, text=True) for i in range(2)
    ]
    try:
        errors = [process.communicate(timeout=60)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    # Where process 0 ends abruptly, JAX may abort the other first.
    assert processes[0].returncode == code, errors[0]
    assert ("process 0 of 2 was cut off. Restart all from the last checkpoint." in errors[0]) == told


def test_a_process_that_only_lost_another_is_not_the_first_that_failed(tmp_path):
    ends = "sys.exit(75) if os.environ['SHARDES_PROCESS_ID'] == '0' else (time.sleep(0.5), sys.exit(7))"
    assert run(2, 1, script_of(tmp_path, f"import os, sys, time; {ends}"))[0] == 7
    assert run(2, 1, script_of(tmp_path, "import sys; sys.exit(75)"))[0] == 75
