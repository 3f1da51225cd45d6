"""The examples of docs/host_api.md, docs/parallel.md, docs/firmware.md and the README run as they stand."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\.venv/bin/(ringloom .*)$", README, re.M)


def test_host_api_examples(capsys):
    text = (Path(__file__).parents[2] / "docs" / "host_api.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 4
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/host_api.md", "exec"), names)
    assert "bottleneck" in capsys.readouterr().out


def test_parallel_examples():
    text = (ROOT / "docs" / "parallel.md").read_text()
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, "docs/parallel.md", "exec"), names)
    assert names["dev"].closed


def test_firmware_examples():
    text = (Path(__file__).parents[2] / "docs" / "firmware.md").read_text()
    block, = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(block, "docs/firmware.md", "exec"), {})


def test_readme_example(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("True ")


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_command(command, tmp_path):
    words = shlex.split(command)[1:]
    ringloom = Path(sys.executable).with_name("ringloom")
    run = subprocess.run([ringloom, *words], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_readme_has_commands():
    assert len(COMMANDS) >= 6
