"""What training does to flash."""

from __future__ import annotations

from ziplan.laws.law import law
from ziplan.units import Bytes, Count, Ratio, Seconds


@law("JEDEC JESD218")
def drive_lifetime(
    drive_endurance: Bytes, drive_count: Count, bytes_written_per_step: Bytes, step_time: Seconds
) -> Seconds:
    """Time until drives that share the writes evenly have taken what they are rated for."""
    return drive_endurance * drive_count / bytes_written_per_step * step_time


@law("JEDEC JESD218")
def bytes_written_per_day(bytes_written_per_step: Bytes, step_time: Seconds, day_length: Seconds) -> Bytes:
    """Bytes written in a day of training."""
    return bytes_written_per_step / step_time * day_length


@law("JEDEC JESD218")
def drive_writes_per_day(bytes_written_per_day: Bytes, drive_count: Count, drive_capacity: Bytes) -> Ratio:
    """How often a day of training overwrites the drives (the vendors' DWPD)."""
    return bytes_written_per_day / (drive_count * drive_capacity)
