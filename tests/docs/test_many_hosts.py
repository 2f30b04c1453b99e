"""The example many_hosts.py runs as each of its launch files has it run, and goes on where an earlier start ended."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "many_hosts.py"
LAUNCH = ROOT / "docs" / "examples" / "launch"
ONE_DEVICE = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}


def run(folder: Path, generations: int, *processes: dict[str, str], launcher: tuple[str, ...] = ()) -> list[str]:
    """Run it as processes with these variables; what each prints."""
    more = ("--distributed",) if launcher or len(processes) > 1 else ()
    command = [sys.executable, *launcher, EXAMPLE, "--out", folder, "--generations", str(generations), "-n", "4", *more]
    started = [
        subprocess.Popen(
            command,
            env=os.environ | ONE_DEVICE | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for variables in processes
    ]
    outputs = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0] * len(started), outputs
    return [out for out, _ in outputs]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_one_process(tmp_path: Path) -> None:
    (printed,) = run(tmp_path / "run", 2, {})
    assert printed == "2 generations done, 2 of them now, on 1 devices of 1 processes\n"
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_each_start_goes_on_with_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(out, 1, {})
    (printed,) = run(out, 2, {}, launcher=("-m", "shardes.distributed", "--processes", "2", "--devices", "2"))
    assert "2 generations done, 1 of them now, on 4 devices of 2 processes" in printed

    _, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    names = {variable["name"] for variable in container["env"]}
    assert names == {"SHARDES_PROCESSES", "SHARDES_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"}
    address = {"SHARDES_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}"}
    first, _ = run(out, 3, *(address | {"SHARDES_PROCESS_ID": str(i)} for i in range(2)))
    assert "3 generations done, 1 of them now, on 2 devices of 2 processes" in first

    node = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    node |= {"JAX_COORDINATOR_PORT": str(free_port())}
    first, _ = run(out, 4, *(node | {"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in range(2)))
    assert "4 generations done, 1 of them now, on 2 devices of 2 processes" in first


def test_the_manifest_of_kubernetes_fits_together() -> None:
    service, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    name = job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert variables["SHARDES_PROCESSES"] == str(spec["completions"]) == str(spec["parallelism"])
    host, port = variables["JAX_COORDINATOR_ADDRESS"].split(":")
    assert host == f"{name}-0.{pod['subdomain']}"
    assert [entry["containerPort"] for entry in container["ports"]] == [int(port)]


@pytest.mark.parametrize("script", ["launch/slurm.sh", "launch/cloud-tpu.sh"])
def test_a_launch_file_is_sound_shell(script: str) -> None:
    subprocess.run(["bash", "-n", LAUNCH.parent / script], check=True)


@pytest.mark.parametrize("script", ["slurm.sh", "kubernetes.yaml", "cloud-tpu.sh"])
def test_a_launch_file_calls_the_example_by_options_that_it_has(script: str) -> None:
    text = (LAUNCH / script).read_text()
    assert "docs/examples/many_hosts.py" in text
    assert "--distributed" in text
