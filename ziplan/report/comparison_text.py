"""A comparison on a terminal: options side by side, what binds each, whether to buy or to offload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isinf
from string import ascii_uppercase

from ziplan.report.comparison import Budget, Comparison, Option
from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.phrases import binding_words, money, shown
from ziplan.report.sweep import Outcome
from ziplan.report.table import GAP, Column, table
from ziplan.report.text import VERDICTS
from ziplan.solve.changes import WORTH_SAYING
from ziplan.solve.enumerate import WORTH_OFFLOADING
from ziplan.solve.problem import Baseline
from ziplan.units import counted, show, show_duration

DAY, HOUR = 86_400.0, 3600.0
ALIKE = 0.02
"""Share by which costs may differ and count as equal: the model tells no more."""
MOST_RELIEFS = 3


def comparison_text(found: Comparison, width: int) -> list[Line]:
    """The whole answer."""
    lines = wrapped(f"{found.model}: {counted(len(found.options), 'option')}, {budget_words(found)}", width)
    for letter, option in lettered(found):
        lines += wrapped(f"{letter}  {option.name}", width, indent="   ")
    lines += [line(), *_tables(found, width), line()]
    for letter, option in lettered(found):
        for sentence in _said(option, found):
            lines += wrapped(f"{letter}  {sentence}", width, indent="   ")
    for sentence in _choices(found):
        lines += wrapped(sentence, width)
    return lines


def lettered(found: Comparison) -> Iterator[tuple[str, Option]]:
    """Options under letters, numbers beyond Z."""
    for place, option in enumerate(found.options):
        yield letter_of(place), option


def letter_of(place: int) -> str:
    """What an option is called in the tables."""
    return ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1)


def budget_words(found: Comparison) -> str:
    """The tokens that time and cost are for."""
    return f"time and cost for {show(found.tokens, 'token')}"


def _tables(found: Comparison, width: int) -> list[Line]:
    """Rows of figures with an option a column, in as many tables as the width asks for."""
    titles, cells = _cells(found)
    first = max(map(len, titles))
    lines: list[Line] = []
    letters = [letter for letter, _ in lettered(found)]
    columns = [Column(letter, cell) for letter, cell in zip(letters, cells, strict=True)]
    while columns:
        taken = [columns.pop(0)]
        used = first + len(GAP) + taken[0].width
        while columns and used + len(GAP) + columns[0].width <= width:
            used += len(GAP) + columns[0].width
            taken.append(columns.pop(0))
        lines += [line()] * bool(lines) + table([Column("", titles, right=False), *taken], width)
    return lines


def _cells(found: Comparison) -> tuple[list[str], list[list[Span | str]]]:
    """Titles of the rows, and for each option its cells."""
    cost = "cost" if found.priced else "GPU-hours"
    rows: dict[str, Callable[[Option], Span | str]] = {
        "verdict": _verdict,
        "GPUs": lambda each: f"{each.outcome.gpus:,}" if each.outcome else "-",
        "step": lambda each: _timed(each, lambda outcome, _: shown(outcome.step_time, "s")),
        "tokens a step": lambda each: _timed(each, lambda outcome, _: _short(outcome.tokens_per_step)),
        "tokens a day": lambda each: _timed(each, lambda outcome, _: _short(outcome.tokens_per_s * DAY)),
        "days": lambda each: _timed(each, lambda _, budget: show(budget.time / DAY, "1", 3)),
        cost: lambda each: _timed(each, lambda _, budget: _paid(budget, found.priced)),
        "of GPU peak": lambda each: _timed(each, lambda outcome, _: _share(outcome.share_of_peak)),
        "GPUs, no offload": _plain_gpus,
        "drives last": _lifetime,
    }
    return list(rows), [[cell(option) for cell in rows.values()] for option in found.options]


def _verdict(option: Option) -> Span:
    return Span(option.verdict.replace("_", " "), VERDICTS.get(option.verdict, "red"))


def _timed(option: Option, figure: Callable[[Outcome, Budget], str]) -> str:
    if option.outcome is None or option.budget is None:
        return "-"
    return figure(option.outcome, option.budget)


def _short(tokens: float) -> str:
    return show(tokens, "token", 3).replace("token", "").strip()


def _paid(budget: Budget, priced: bool) -> str:
    if priced and budget.dollars is not None:
        return show(budget.dollars, "USD", 3)
    return show(budget.gpu_time / HOUR, "1", 3)


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"


def _plain_gpus(option: Option) -> str:
    if option.baseline is None:
        return "-"
    return "no number" if isinf(option.baseline.gpus) else f"{option.baseline.gpus:,.0f}"


def _lifetime(option: Option) -> str:
    if option.outcome is None or option.budget is None:
        return "-"
    if not option.outcome.flash_writes_per_token > 0:
        return "unused"
    known = option.outcome.drive_lifetime
    return "unknown" if known is None else show_duration(known, 3)


def _said(option: Option, found: Comparison) -> Iterator[str]:
    """What binds an option, what frees it, and whether to buy GPUs in place of offloading."""
    if option.outcome is None:
        yield f"refused: {'; '.join(option.refused)}"
        return
    yield f"binds: {binding_words(option.outcome.binding)}{_frees(option)}"
    if option.price is not None:
        source = ", ".join(filter(None, (option.price.source, option.price.date))) or "source not stated"
        yield f"price: {money(option.price.per_node_hour_usd)} per node and hour ({source})"
    yield advice(option, found)


def _frees(option: Option) -> str:
    """What a little more of each thing saves of a step, most first; what would make it fit."""
    if not option.reliefs:
        fixes = [f"{each.path} from {each.before} to {each.after}: {each.effect}" for each in option.fixes]
        return f"; {'; '.join(fixes[:MOST_RELIEFS])}" if fixes else ""
    worth = [each for each in option.reliefs if each.share >= WORTH_SAYING][:MOST_RELIEFS]
    if not worth:
        tried = ", ".join(each.what for each in option.reliefs)
        return f"; none of these saves {WORTH_SAYING:.0%} of a step: {tried}"
    words = [f"{each.what} saves {shown(each.saved, 's')} a step ({each.share:.0%})" for each in worth]
    return f"; {', '.join(words)}"


def advice(option: Option, found: Comparison) -> str:
    """Whether to buy more GPUs or to offload, with the numbers that say so."""
    base = option.baseline
    if base is None:
        return ""
    need = "no number of these GPUs holds it without offload"
    if not isinf(base.gpus):
        need = f"plain stage 3 needs {counted(base.gpus, 'GPU')}"
    if option.verdict == "does_not_fit":
        return f"it does not fit here; {need}"
    if not option.offloads:
        sure = option.verdict == "fits"
        return _ALL_IN_GPU if sure else f"nothing is offloaded, and it is not sure that it fits; {need}"
    if option.budget is None:
        return f"what offloading costs is unknown, as a rate is not stated; {need}"
    return _weighed(option, option.budget, base, need, found.priced)


_ALL_IN_GPU = (
    "do not offload: everything fits in GPU memory, and nothing offloaded is more than "
    f"{WORTH_OFFLOADING - 1:.0%} faster"
)


def _weighed(option: Option, budget: Budget, base: Baseline, need: str, priced: bool) -> str:
    """Offloading here against plain stage 3 on the GPUs that it needs."""
    takes = f"offloading on {counted(option.outcome.gpus if option.outcome else 0, 'GPU')} takes "
    share = option.outcome.share_of_peak if option.outcome else None
    takes += _words(budget, priced, share)
    if option.plain is None:
        return f"{takes}; {need}" + ("" if isinf(base.gpus) else ", whose time cannot be told")
    # The same tokens of the same model: shares of the peak go as the GPU time, inversely.
    plain_share = None if share is None else share * budget.gpu_time / option.plain.gpu_time
    plain = _words(option.plain, priced, plain_share)
    if base.fits_here:
        return f"{takes}; plain stage 3 fits here too and takes {plain}"
    there = f"and on {counted(base.step_gpus or base.gpus, 'GPU')} takes {plain}"
    return f"{takes}; {need}, {there}: {_verdict_on(budget, option.plain, priced)}"


def _words(budget: Budget, priced: bool, share: float | None) -> str:
    """Days, cost, and how well the GPUs are used."""
    cost = _paid(budget, priced) + ("" if priced else " GPU-hours")
    used = "" if share is None else f" ({share:.0%} of the GPUs' peak)"
    return f"{show(budget.time / DAY, '1', 3)} days and {cost}{used}"


def _verdict_on(here: Budget, plain: Budget, priced: bool) -> str:
    """Which of the two costs less, and what the other one gives for it."""
    ratio, faster = plain.gpu_time / here.gpu_time, here.time / plain.time
    if priced and here.dollars is not None and plain.dollars is not None:
        # What is free costs the same as anything else that is.
        ratio = plain.dollars / here.dollars if here.dollars else 1.0
    speed = f"{show(faster, '1', 2)} times as fast"
    if ratio < 1 - ALIKE:
        return f"buying the GPUs costs {1 - ratio:.0%} less for the tokens and is {speed}"
    if ratio > 1 + ALIKE:
        return f"offloading costs {1 - 1 / ratio:.0%} less for the tokens; buying is {speed}"
    return f"both cost the same for the tokens; buying is {speed}"


def _choices(found: Comparison) -> Iterator[str]:
    """Which option is fastest and which costs least."""
    if found.fastest is None or found.cheapest is None:
        yield "none of them is known to fit"
        return
    measure = "dollars"
    if not found.priced:
        machines = {each.outcome.machine for each in found.options if each.outcome and each.usable}
        differ = "; hours of different GPUs are different money" * (len(machines) > 1)
        some = any(each.price is not None for each in found.options)
        measure = f"GPU-hours ({'not every' if some else 'no'} option has a price{differ})"
    yield f"fastest: {letter_of(found.fastest)}; fewest {measure}: {letter_of(found.cheapest)}"
