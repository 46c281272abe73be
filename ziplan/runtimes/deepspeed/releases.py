"""Releases of DeepSpeed, and what ran without one: how a run names them, and when they came out."""

from __future__ import annotations

import re

NAME = "deepspeed"

VERSION = "0.19.8"
"""The newest release, the one that plans are made for."""

NUMBERS = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
MONTH = re.compile(r"20[0-9][0-9]-(0[1-9]|1[0-2])")

FIRST_MONTH = "2020-02"
"""When DeepSpeed was published."""

PAPER_ENGINE = "arXiv:2104.07857"
"""The engine that the ZeRO-Infinity paper measured, which no release is."""

PYTORCH = "PyTorch"
"""No DeepSpeed at all: modules and an optimizer of PyTorch, for which a stage that divides nothing stands."""

RELEASED = {
    "0.3.13": "2021-03",
    "0.4.0": "2021-06",
    "0.4.4": "2021-07",
    "0.5.10": "2022-01",
    "0.6.0": "2022-03",
    "0.9.0": "2023-04",
    "0.10.1": "2023-08",
    "0.12.4": "2023-12",
    "0.12.6": "2023-12",
    "0.13.2": "2024-02",
    "0.14.1": "2024-04",
    "0.14.2": "2024-04",
    "0.15.2": "2024-10",
    "0.15.4": "2024-11",
    "0.16.3": "2025-01",
    "0.17.0": "2025-06",
    "0.18.0": "2025-10",
    "0.18.3": "2025-12",
    "0.19.0": "2026-05",
    "0.19.4": "2026-08",
    "0.19.5": "2026-08",
    "0.19.8": "2026-11",
}
"""Month of each release at which a trait begins or ends (dates of the files in its source archive)."""


def parsed(version: str) -> tuple[int, ...]:
    """A release as numbers, to be compared; of a month the newest one at which a trait begins or ends."""
    if MONTH.fullmatch(version):
        out = [release for release, month in RELEASED.items() if month <= version]
        return parsed(out[-1]) if out else (0, 0, 0)
    numbers = NUMBERS.fullmatch(version)
    if numbers is None:
        raise ValueError(
            f"{version[:30]!r} is no release such as 0.9.2, no month such as 2023-05, nor {PAPER_ENGINE} or "
            f"{PYTORCH}"
        )
    return tuple(int(part) for part in numbers.groups())


def known(version: str) -> tuple[int, ...]:
    """A release or a month as numbers, of those that there were when the newest came out."""
    release, of_month = parsed(version), MONTH.fullmatch(version)
    if release > parsed(VERSION) or (of_month and version > RELEASED[VERSION]):
        raise ValueError(
            f"{version} is newer than {VERSION} of {RELEASED[VERSION]}, the newest release that is known: "
            f"write {VERSION} to have it taken as that one"
        )
    if of_month and version < FIRST_MONTH:
        raise ValueError(f"{version} is before {FIRST_MONTH}, in which DeepSpeed was published")
    return release
