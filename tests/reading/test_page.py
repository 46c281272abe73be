"""docs/configs.md is what the table says."""

from pathlib import Path

from ziplan.runtimes.deepspeed.reading.page import configs_page
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "configs.md"


def test_the_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == configs_page(), "docs/configs.md is stale: run `make docs`"


def test_every_key_is_on_the_page():
    page = configs_page()
    for section in SECTIONS.values():
        assert all(f"`{key.name}`" in page for key in section.keys), section.path
