"""What a run costs the drives: bytes written as a share of what they may be written in their life."""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.bench.matching import drive_part, stated
from ziplan.bench.record import Record
from ziplan.bench.storage.plan import measurable
from ziplan.hardware.shipped import shipped


def wears(record: Record, written: float) -> Iterator[tuple[str, float]]:
    """Drives whose endurance is known, and the share of it that their part of the bytes is.

    Folders take equal parts, and the drives below one equal parts of that.
    """
    folders = measurable(record.topology.folders)
    drives = {drive.name: drive for drive in record.topology.drives}
    for folder in folders:
        for name in folder.drives:
            part = drive_part(drives[name].model) if name in drives else ""
            document = shipped("drives", part) if part else None
            endurance = stated(document.data, "B", "endurance") if document is not None else None
            if endurance:
                yield (
                    f"{name} ({drives[name].model})",
                    written / len(folders) / len(folder.drives) / endurance,
                )
