"""Folders that a drive can be measured through."""

import pytest
from bench.drive import loop

from ziplan.bench.measurement import CannotMeasure
from ziplan.bench.storage.plan import SMALLEST_FILE
from ziplan.bench.storage.scratch import room, scratch


@pytest.fixture
def direct(tmp_path):
    """A folder that takes direct I/O, has room and holds nothing: here, or on a loop device."""
    own = tmp_path / "drive"
    own.mkdir()
    try:
        with scratch(str(own)):
            pass
        if room(str(own)).usable >= 2 * SMALLEST_FILE:
            yield own
            return
    except CannotMeasure:
        pass
    with loop(tmp_path, 1 << 30) as (folder, _):
        yield folder
