"""In what eager attention takes its softmax, in memory."""

from __future__ import annotations

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES

TOKENS, HEADS = 16, 8


def scores(runtime, **training):
    machine, real = cluster(gpus=8), RUNTIMES[runtime]
    work, chosen = workload(**training), plan(dp_degree=8.0)
    book = real.ledger(Derivation(record=False), machine, work, real.settle(machine, work, chosen))
    (line,) = [one for one in book.lines if one.name == "attention scores in fp32"]
    return line.low, line.high


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp", "megatron"])
@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"attention": "eager"}, (0, 4)),
        ({"attention": "eager", "softmax": "fp32"}, (4, 4)),
        ({"attention": "eager", "softmax": "16-bit"}, (0, 0)),
        ({"attention": "flash", "softmax": "fp32"}, (0, 0)),
    ],
)
def test_a_softmax_that_is_stated_narrows_the_line(runtime, training, expected):
    each = HEADS * TOKENS * TOKENS
    assert scores(runtime, **training) == tuple(each * size for size in expected)
