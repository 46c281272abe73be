"""The terms of a step: one table, which the glossary repeats and which every step program keeps to."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.runtime import COLLECTIVE, bare
from ziplan.runtimes.terms import TERMS

NAMES = Path(__file__).parents[2] / "docs" / "names.md"
HOMES = [("hbm", "hbm"), ("hbm", "dram"), ("dram", "dram"), ("hbm", "nvme"), ("nvme", "nvme")]
WAITING = {"pipeline bubble", "uneven stages", "gradient copies of other ranks"}
"""Terms of waiting for whatever others do."""


def test_the_glossary_has_them_in_their_order_with_what_they_mean():
    section = NAMES.read_text(encoding="utf-8").partition("## Terms of a step")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!term |---)(.+?) \| (.+) \|$", section, re.M)
    assert rows == list(TERMS.items())


def answers():
    """Steps of every runtime over places, stages and accumulation."""
    machine, work = cluster(gpus=4), workload(toy(6, 1024, 4096), sequence_length=256)
    for name, runtime in RUNTIMES.items():
        homes = HOMES if name in ("deepspeed", "ideal") else HOMES[:1] + HOMES[2:3] * (name == "fsdp")
        for params, optimizer in homes:
            for stage in (1, 2, 3) if name == "deepspeed" and params == "hbm" else (3,):
                for steps in (1.0, 3.0):
                    chosen = plan(
                        params,
                        optimizer,
                        dp_degree=4.0,
                        zero_stage=1.0 if name == "megatron" else float(stage),
                        accumulation_steps=steps,
                        activation_checkpointing=float(Checkpointing.FULL),
                    )
                    yield machine, work, runtime, runtime.settle(machine, work, chosen)


@pytest.fixture(scope="module")
def steps():
    return [(asked[2].NAME, estimate(*asked)) for asked in answers()]


def test_every_step_is_made_of_them(steps):
    assert {term for _, step in steps for term in step.busy} <= {*TERMS}


def test_a_term_goes_one_way(steps):
    """Of one runtime, whatever the plan, a term's bytes are of one resource: of a tier in one direction."""
    ways = defaultdict(set)
    for name, step in steps:
        for demand in (each for segment in step.segments for chain in segment.chains for each in chain):
            if demand.amount > 0 and demand.resource != COLLECTIVE:
                ways[name, demand.term].add(bare(demand.resource).rpartition(".")[2])
    assert not {key: found for key, found in ways.items() if len(found) > 1 and key[1] not in WAITING}
