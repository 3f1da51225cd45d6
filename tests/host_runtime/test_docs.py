"""The examples of docs/host_api.md run as they stand."""

import re
from pathlib import Path


def test_host_api_examples(capsys):
    text = (Path(__file__).parents[2] / "docs" / "host_api.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 4
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/host_api.md", "exec"), names)
    assert "bottleneck" in capsys.readouterr().out
