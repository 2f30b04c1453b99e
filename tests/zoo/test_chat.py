"""A chat template sees what transformers gives it, and can do no harm: its process has limits, and is replaced."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import MappingProxyType

import pytest

from shardes.zoo.errors import CheckpointError, ZooError
from shardes.zoo.snapshot import chat, chat_process
from shardes.zoo.snapshot.chat import render

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")


def text(template, /, **variables):
    return render(template, "template", variables)


@pytest.fixture
def own_process():
    """No process before and after."""
    chat_process._stop()
    yield
    chat_process._stop()


def test_what_templates_are_given():
    assert text("{{ x | tojson }}", x={"a": "<é'&>"}) == '{"a": "<é\'&>"}'
    assert text("{{ x | tojson(indent=1) }}", x=[1]) == "[\n 1\n]"
    assert text("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert text("  {% if true %}\n  a\n  {% endif %}\nb") == "  a\nb"
    assert text("{% generation %}a{% endgeneration %}b") == "ab"
    assert text("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}") == "21"
    assert text("{{ strftime_now('%Y') }}") == str(time.localtime().tm_year)
    assert (
        text("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}{{ 'a%s' % 'b' }}{{ 2 * 3 + 2 ** 3 }}")
        == "2ab14"
    )


@pytest.mark.parametrize(
    "value",
    [
        {"b": 1, "a": [None, True, 1.5, -(10**30)]},
        [math.inf, -math.inf, math.nan],
        "\ud83d\ude00 \ud83d \x00\x1f\u2028 \\u0041 😀",
        [],
        "",
    ],
    ids=repr,
)
def test_values_come_unchanged(value):
    from jinja2 import Template

    template = "{{ x }}|{{ x is mapping }}|{{ x is string }}"
    assert text(template, x=value) == Template(template).render(x=value)
    assert text("{{ x | tojson }}", x=value) == json.dumps(value, ensure_ascii=False)


def test_mappings_and_sequences_become_plain():
    assert text("{{ x }}", x=(MappingProxyType({"a": (1, 2)}), range(2))) == "[{'a': [1, 2]}, [0, 1]]"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"content": {1}}], r"x\[0\]\['content'\] is a set, and must be None, a boolean, a number, text, or a list"),
        (b"a", "x is a bytes, and must be"),
        (len, "x is a builtin_function_or_method, and must be"),
        ({"a": {1: 2}}, r"x\['a'\] has the key 1, and a chat template can read text keys only"),
    ],
)
def test_values_that_are_no_plain_data(value, message):
    with pytest.raises(TypeError, match=message):
        text("", x=value)


def test_a_value_that_holds_itself():
    value = []
    value.append(value)
    with pytest.raises(ValueError, match="x holds itself or is nested too deeply"):
        text("", x=value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "template cannot be rendered: roles must alternate$"),
        ("{{ raise_exception('\\x1b[2J') }}", r"template cannot be rendered: '\\x1b\[2J'$"),
        ("{{ raise_exception('a' * 10 ** 6) }}", "template cannot be rendered: a{500}$"),
        ("{{ messages.", "template cannot be rendered"),
        ("{{ messages.append(1) }}", "unsafe|not safely"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('x') }}", "unsafe|undefined"),
        ("{% include '/etc/hostname' %}", "template cannot be rendered"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{" + "(" * 9999 + "1" + ")" * 9999 + "}}", "RecursionError"),
        ("{{ 1" + "+ 1" * 9999 + "}}", "RecursionError"),
        ("{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}", "makes more than 16777216 characters"),
        (" " * 2**21, "template has 2097152 characters, and must have at most 1048576"),
    ],
    ids=lambda value: value[:60],
)
def test_what_templates_may_not_do(template, message):
    with pytest.raises(CheckpointError, match=message):
        render(template, "template", {"messages": []})


DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = BODY %}{% endfor %}"


@linux
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10 ** 10 }}",
        "{{ [1] * 10 ** 9 }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ 'a'.center(10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ 'a'.zfill(10 ** 10) }}",
        "{{ '\t'.expandtabs(2 ** 31 - 1) }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ 'a\nb' | indent(10 ** 10) }}",
        "{{ [1] | tojson(indent=10 ** 10) }}",
        "{{ ([1] | batch(10 ** 9, 1) | list) }}",
        "{% set x %}{% for i in range(9999) %}{{ 'a' * 10 ** 6 }}{% endfor %}{% endset %}",
        "{% macro f() %}{% for i in range(9999) %}{{ 'a' * 10 ** 6 }}{% endfor %}{% endmacro %}{% set x = f() %}",
        DOUBLED.replace("BODY", "ns.x ~ ns.x"),
        DOUBLED.replace("BODY", "ns.x + ns.x"),
        DOUBLED.replace("BODY", "ns.x.replace('a', 'aaaa')"),
        DOUBLED.replace("BODY", "ns.x | replace('a', 'aaaa')"),
        DOUBLED.replace("BODY", "ns.x.translate({97: 'aaaa'})"),
        DOUBLED.replace("BODY", "ns.x.join(ns.x)"),
        DOUBLED.replace("BODY", "[ns.x, ns.x] | join"),
        DOUBLED.replace("BODY", "'%s%s' % (ns.x, ns.x)"),
        DOUBLED.replace("BODY", "'{0}{0}'.format(ns.x)"),
    ],
)
def test_a_template_has_its_memory(template, own_process, monkeypatch):
    monkeypatch.setattr(chat_process, "_MEMORY", 2**27)
    with pytest.raises(CheckpointError, match="template cannot be rendered: it takes more memory than 128 MiB"):
        text(template)
    assert text("{{ 1 }}") == "1"


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in range(500) %}{% set x = range(99999) | list | sort %}{% endfor %}",
        "{% for i in range(99999) if (range(99999) | list | sort) and false %}{% endfor %}",
        "{% set ns = namespace(x=3) %}{% for i in range(40) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{{ 7 ** (2 ** 26) }}",
        "{{ lipsum(n=10 ** 6) }}",
    ],
)
def test_a_template_has_its_time(template, monkeypatch):
    monkeypatch.setattr(chat, "_MAX_SECONDS", 0.2)
    with pytest.raises(CheckpointError, match=r"template cannot be rendered: it takes more than 0\.2 seconds"):
        text(template)
    monkeypatch.undo()
    assert text("{{ 1 }}") == "1"


def pid():
    return chat_process._worker._process.pid


def test_the_process_is_kept():
    text("")
    first = pid()
    with pytest.raises(CheckpointError, match="ZeroDivisionError"):
        text("{{ 1 // 0 }}")
    assert text("{{ 2 }}") == "2"
    assert pid() == first


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_an_interrupt_of_the_terminal_leaves_the_process():
    text("")
    first = pid()
    os.kill(first, signal.SIGINT)
    assert text("{{ 2 }}") == "2"
    assert pid() == first


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_a_process_that_does_not_even_keep_its_own_time_is_killed(monkeypatch):
    text("")
    os.kill(pid(), signal.SIGSTOP)
    monkeypatch.setattr(chat, "_MAX_SECONDS", 0.2)
    with pytest.raises(CheckpointError, match=r"takes more than 0\.2 seconds"):
        text("")


def test_a_process_that_ended_between_is_replaced():
    text("")
    first = chat_process._worker._process
    first.kill()
    first.wait()
    assert text("{{ 2 }}") == "2"
    assert pid() != first.pid


@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_request_is_not_answered_later(fault, monkeypatch):
    def interrupted(self, size):
        raise fault

    text("")
    monkeypatch.setattr(chat_process._Worker, "_read", interrupted)
    with pytest.raises(fault):
        text("{{ 1 }}")
    monkeypatch.undo()
    assert text("{{ 2 }}") == "2"


def test_a_process_that_fails_is_an_error():
    worker = chat_process._Worker()
    with pytest.raises(chat_process._Ended, match="its process ended with status 1"):
        worker.ask(b"{", 10)


def test_an_answer_that_no_text_needs_is_not_read(monkeypatch):
    monkeypatch.setattr(chat_process, "_MAX_ANSWER", 99)
    with pytest.raises(CheckpointError, match="its process ended"):
        text("a" * 100)
    assert text("a") == "a"


def test_threads_get_their_own_answers():
    def ask(i):
        found[i] = [text("{{ x }}", x=f"{i} {j}") for j in range(50)]

    found = {}
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: [f"{i} {j}" for j in range(50)] for i in range(8)}


@linux
def test_the_process_sees_no_secrets(own_process, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    text("")
    environment = Path(f"/proc/{pid()}/environ").read_bytes()
    assert {entry.partition(b"=")[0].decode() for entry in environment.split(b"\0")} <= {"", *chat_process._ENVIRONMENT}


@pytest.mark.parametrize(
    ("executable", "message"), [("", "sys.executable is empty"), ("/nowhere/python", "No such file")]
)
def test_a_place_without_python(executable, message, own_process, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(ZooError, match=f"cannot be started: .*{message}.*must be the path of a Python"):
        text("")


def test_what_it_runs_must_be_a_file(own_process, monkeypatch):
    monkeypatch.setattr(chat_process.chat_worker, "__file__", "/some/archive.zip/chat_worker.py")
    with pytest.raises(ZooError, match=r"chat_worker.py is no file, .* Install shardes-zoo into a folder"):
        text("")


@pytest.mark.skipif(os.name != "posix", reason="makes a script executable")
def test_an_executable_that_is_no_python(own_process, monkeypatch, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(ZooError, match=f"{program}: its process ended with status 3"):
        text("")


def started():
    folders = [chat_process._folder(name) for name in ("jinja2", "markupsafe")]
    command = [sys.executable, "-I", "-S", chat_process.chat_worker.__file__, str(2**29), *folders]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("template", ["{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3, "{{ 7 ** (2 ** 26) }}"])
def test_a_rendering_without_a_parent_ends_by_itself(template):
    with started() as process:
        content = json.dumps({"template": template, "variables": {}, "seconds": 0.2}).encode()
        process.stdin.write(chat_process.HEADER.pack(len(content)) + content)
        process.stdin.flush()
        assert process.wait(60) == 1
        assert b"Timeout (0:00:00.2" in process.stderr.read()


def test_a_process_without_a_parent_ends():
    with started() as process:
        process.stdin.close()
        assert process.wait(60) == 0


FORKED = """
import os
from shardes.zoo.snapshot import chat_process
from shardes.zoo.snapshot.chat import render
def pid():
    assert render("{{ 1 }}", "template", {}) == "1"
    return chat_process._worker._process.pid
first = pid()
# As another thread would hold it.
chat_process._lock.acquire()
child = os.fork()
if not child:
    assert chat_process._worker is None
    assert pid() != first
    raise SystemExit
chat_process._lock.release()
assert os.waitpid(child, 0)[1] == 0
assert pid() == first
# Nothing else holds the pipe.
chat_process._worker._stdin.close()
assert chat_process._worker._process.wait(60) == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_has_a_process_of_its_own():
    done = subprocess.run([sys.executable, "-X", "dev", "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
