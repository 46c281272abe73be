"""ZP301 to ZP307: what becomes of each key, as the reader of the config remarks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Rule

WHEN = {
    "config": "",
    "start": " (noticed when the engine is made)",
    "training": " (noticed in a step)",
}


def remarked(kind: str) -> Callable[[Case], Iterator[Hit]]:
    """A rule's function: every remark of a kind, where the reader put it."""

    def find(case: Case) -> Iterator[Hit]:
        for remark in case.remarks:
            if remark.kind == kind:
                message = remark.message + WHEN.get(remark.moment, "")
                place = remark.file, remark.line, remark.column
                yield Hit(message, remark.path, remark.path, remark.fix, None, *place)

    return find


_REPLACED = re.compile(r"auto becomes (.*), from ")


def replaced(case: Case) -> Iterator[Hit]:
    """All values of auto that a trainer replaces, as one finding at the first of them."""
    told = [(each, _REPLACED.search(each.message)) for each in case.remarks if each.kind == "derived"]
    found = [(each, match[1]) for each, match in told if match is not None]
    if found:
        first = found[0][0]
        values = ", ".join(f"{each.path} {value}" for each, value in found)
        message = f"the trainer replaces auto {len(found)} times: {values}"
        yield Hit(message, first.path, first.path, "", None, first.file, first.line, first.column)


KEYS = (
    Rule(
        "ZP301",
        "A key is rejected",
        "error",
        remarked("rejected"),
        "DeepSpeed, or the trainer, raises on the key or its value.",
        "The run ends before the first step, or in it.",
        '"offload_optimizer": {"buffer_size": 1e8}: buffer_size is a key of offload_param alone',
        "As the finding says.",
    ),
    Rule(
        "ZP302",
        "A key is ignored",
        "warning",
        remarked("ignored"),
        "Nothing reads the key where it stands, or not in this stage or with this device.",
        "What it was written for does not happen, and nobody says so.",
        '"offload_optimizer" beside "zero_optimization" instead of inside it',
        "Move it to where it is read, or leave it out.",
    ),
    Rule(
        "ZP303",
        "auto becomes a default",
        "warning",
        remarked("defaulted"),
        "`auto` stands where no trainer replaces it, so DeepSpeed drops it and takes its default.",
        "Defaults are made for large GPUs: 1e9 live parameters are 2 GB, a reduce bucket of 5e8 is 1 GB and "
        "more.",
        '"reduce_bucket_size": "auto" without the Hugging Face Trainer',
        "Write the value that is meant.",
    ),
    Rule(
        "ZP304",
        "A key is deprecated",
        "note",
        remarked("deprecated"),
        "An old key that sets another one, or nothing.",
        "It goes away with a release, and some are refused beside their successors.",
        '"cpu_offload": true',
        "Write the key that it sets.",
    ),
    Rule(
        "ZP305",
        "auto is replaced",
        "note",
        replaced,
        "The file leaves a value to the trainer; the finding says what it comes to.",
        "Nothing is wrong: it is told so that the number is seen.",
        '"train_batch_size": "auto" under the Trainer',
        "Nothing, unless the number is not the one that is meant.",
    ),
    Rule(
        "ZP306",
        "A key is not planned",
        "note",
        remarked("not_planned"),
        "DeepSpeed obeys the key, and ziplan's ledger and step do not know it.",
        "Memory and time of this config may be off by what the key does.",
        '"zero_quantized_weights": true',
        "Take the numbers with that in mind.",
    ),
    Rule(
        "ZP307",
        "An input is missing",
        "warning",
        remarked("unknown"),
        "What the config comes to depends on something that it does not say.",
        "The answer is given for what was taken in its place.",
        "an accelerate config without num_processes",
        "State it.",
    ),
)
