"""Golden rows of all laws: name to (arguments, value) pairs, gathered from the `*_rows.py` beside."""

import importlib
from pathlib import Path

ROWS = {}
for path in sorted(Path(__file__).parent.glob("*_rows.py")):
    rows = importlib.import_module(f"golden.{path.stem}").ROWS
    assert not ROWS.keys() & rows.keys(), f"{path.name}: rows of one law in two files"
    ROWS.update(rows)
