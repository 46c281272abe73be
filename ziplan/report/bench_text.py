"""What a bench found, as text: every measurement with its spread, held against its data sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ziplan.bench.comparison import Judgement, judgements, shares_measured
from ziplan.bench.measurement import Measured, relative_spread
from ziplan.bench.record import PlannedEntry, Record
from ziplan.bench.storage.plan import without_room
from ziplan.bench.wear import wears
from ziplan.hardware.node import Node
from ziplan.report.lines import Line, Span, glued, line, wrapped
from ziplan.report.table import Column, table
from ziplan.units import figure, show, show_duration

STYLES = {"impossible": "bold red", "suspicious": "yellow", "unstable": "yellow"}
DIGITS = 4


def bench_text(
    record: Record, width: int, written: Sequence[str] = (), base: Node | None = None
) -> list[Line]:
    """The answer of a run; `written` names the files that hold it, `base` is the machine that is extended."""
    lines = list(_head(record, width))
    judged = judgements(record, base)
    if judged:
        lines += [line(""), *table(_columns(judged), width)]
    lines += _odd(judged, width)
    lines += _said("shares", [f"{one.shared}: {', '.join(one.members)}" for one in record.contention], width)
    lines += _said("at once", [f"{shared}: {note}" for shared, _, note in shares_measured(record)], width)
    lines += _said("aio", list(_aio(record)), width)
    lines += _said("not measured", _reasons(record), width)
    beside = [noted.text for noted in record.noted if noted.name == "cpu.adam"]
    lines += _said("mind", [*record.environment.warnings, *beside], width)
    hint = "add -o FILE to keep this as a machine file that fit and the others take"
    lines += _said("written", written or ([hint] if record.measured else []), width)
    return lines


def _head(record: Record, width: int) -> Iterator[Line]:
    topology = record.topology
    memory = show(topology.memory_bytes, "B", DIGITS)
    parts = [
        f"{topology.host or 'a node'}: {topology.cpu or 'unknown processors'}, {topology.cores} cores",
        f"{memory} of memory",
        f"{len(topology.gpus)} GPU{'' if len(topology.gpus) == 1 else 's'} on PCI",
    ]
    if not topology.memory_bytes:  # nobody looked at the node: the numbers are another program's
        parts = [f"{topology.host or 'a node'}: numbers of {record.source or 'an unknown program'}"]
    if not record.complete and record.measured:
        parts.append("ended before it was over")
    yield from wrapped(", ".join(parts), width)
    for folder in topology.folders:
        drives = ", ".join(folder.drives) or "no drive that is seen"
        through = f" through {', '.join(folder.through)}" if folder.through else ""
        yield from wrapped(
            f"{folder.label}: {folder.path}, {folder.filesystem} on {drives}{through}", width, keep_words=True
        )


def _columns(judged: Sequence[Judgement]) -> list[Column]:
    def styled(one: Judgement) -> Span:
        return Span(one.verdict, STYLES.get(one.verdict, ""))

    return [
        Column("measured", [one.measured.name for one in judged], right=False),
        Column("median", [_value(one.measured) for one in judged]),
        Column("spread", [f"{relative_spread(one.measured):.1%}" for one in judged], expendable=1),
        Column("n", [str(one.measured.n) for one in judged], expendable=2),
        Column("can do", [_reference(one) for one in judged]),
        Column("share", [_share(one) for one in judged]),
        Column("verdict", [styled(one) for one in judged], right=False),
    ]


def _value(measured: Measured) -> str:
    mark = "~" if measured.kind == "derived" else ""
    return mark + show(measured.median, measured.unit, DIGITS)


def _reference(one: Judgement) -> str:
    return "" if one.reference is None else show(one.reference, one.measured.unit, DIGITS)


def _share(one: Judgement) -> str:
    return "" if not one.reference else f"{one.measured.median / one.reference:.0%}"


def _odd(judged: Sequence[Judgement], width: int) -> list[Line]:
    """Why what is impossible or suspicious is; where a value follows from another, what from."""
    said = [
        f"{one.measured.name}: {one.why}{f' ({one.source})' if one.source else ''}"
        for one in judged
        if one.why
    ]
    said += [
        f"{one.measured.name}: {one.measured.method}" for one in judged if one.measured.kind == "derived"
    ]
    return _said("odd", said, width)


def _said(title: str, sentences: Sequence[str], width: int) -> list[Line]:
    """Sentences under a title in the first column."""
    lines: list[Line] = []
    for index, sentence in enumerate(sentences):
        name = title if index == 0 else ""
        lines += wrapped(
            f"{name:<13}".replace(" ", "\u00a0") + sentence, width, indent=" " * 13, keep_words=True
        )
    return lines


def _aio(record: Record) -> Iterator[str]:
    """The section of a DeepSpeed config for each folder."""
    for noted in record.noted:
        if noted.name.startswith("storage.") and noted.name.endswith(".aio"):
            label = noted.name.removeprefix("storage.").removesuffix(".aio")
            yield f'{label}: "aio": {noted.text}'


def _reasons(record: Record) -> list[str]:
    """What was waived, names with one reason together."""
    grouped: dict[str, list[str]] = {}
    for one in record.waived:
        grouped.setdefault(one.reason, []).append(one.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in grouped.items()]


def plan_text(record: Record, width: int) -> list[Line]:
    """What a run will do: benchmarks, seconds, bytes written, and what that is of the drives' endurance."""
    entries = record.planned
    columns = [
        Column("benchmark", [one.name for one in entries], right=False),
        Column("takes", [_seconds(one) for one in entries]),
        Column("writes at most", [_bytes(one) for one in entries]),
        Column("what", [one.what for one in entries], right=False, expendable=1),
    ]
    lines = [*_head(record, width), *table(columns, width)] if entries else list(_head(record, width))
    storage = any(one.name.startswith("storage") for one in entries)
    lines += _said("not measured", list(without_room(record.topology.folders)) if storage else [], width)
    return [*lines, *wrapped(plan_sentence(record), width)]


def _seconds(one: PlannedEntry) -> str:
    return show_duration(one.duration_s, 2)


def _bytes(one: PlannedEntry) -> str:
    return show(one.written_bytes, "B", 3) if one.written_bytes else ""


def plan_sentence(record: Record) -> str:
    """The sums of a plan."""
    seconds = sum(one.duration_s for one in record.planned)
    written = sum(one.written_bytes for one in record.planned)
    benchmarks = "1 benchmark" if len(record.planned) == 1 else f"{len(record.planned)} benchmarks"
    parts = [f"{benchmarks}, about {glued(show_duration(seconds, 2))}"]
    if written:
        parts.append(f"at most {glued(show(written, 'B', 3))} written")
        parts += [f"{figure(share, 2)} of the endurance of {name}" for name, share in wears(record, written)]
    return ", ".join(parts)
