"""Folders that a drive can be measured through."""

import pytest
from bench.drive import loop

from ziplan.bench.measurement import CannotMeasure
from ziplan.bench.storage.plan import SMALLEST_FILE
from ziplan.bench.storage.scratch import room, scratch


@pytest.fixture
def direct(tmp_path):
    """A folder that takes direct I/O and has room: the test's own, or one on a loop device."""
    try:
        with scratch(str(tmp_path)):
            pass
        if room(str(tmp_path)).usable >= 2 * SMALLEST_FILE:
            yield tmp_path
            return
    except CannotMeasure:
        pass
    with loop(tmp_path, 1 << 30) as (folder, _):
        yield folder
