"""Files that a test writes."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Write a file (a mapping as JSON) and give its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
        return str(path)

    return write
