"""The generated pages of docs/ are those that the sources make today."""

from pathlib import Path

import pytest

from ringloom.hw import counters, isa, regmap
from ringloom.hw.describe import pages

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(pages()))
def test_page_is_fresh(name):
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], f"docs/{name} is stale: run `make docs`"


def test_every_fact_has_its_row():
    text = "".join(pages().values())
    names = [f.name for r in isa.RECORDS for f in r.fields] + [c.name for c in counters.COUNTERS]
    names += [r.name for r in (*regmap.CONTROL, *regmap.TILE)]
    assert [name for name in names if f"`{name}`" not in text] == []
