"""Machines, workloads and plans drawn at random, as hypothesis strategies."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from runtimes.toy import cluster, toy, workload

from ziplan.plan import Plan
from ziplan.runtimes import RUNTIMES


@st.composite
def machines(draw):
    """One to four nodes of one to eight GPUs, from a desktop's memory to a server's."""
    return cluster(
        nodes=draw(st.sampled_from([1, 2, 4])),
        gpus=draw(st.sampled_from([1, 2, 8])),
        hbm=f"{draw(st.integers(8, 200))} GB",
        dram=f"{draw(st.integers(16, 4000))} GB",
        nvme=draw(st.sampled_from([None, "500 GB", "30 TB"])),
    )


@st.composite
def workloads(draw):
    """Models of 0.1 to 40 billion parameters, in either precision."""
    width = draw(st.sampled_from([1024, 1000, 4096, 8192]))
    model = toy(draw(st.integers(1, 48)), width, 4 * width, draw(st.sampled_from([2048, 50257, 128256])))
    return workload(
        model,
        sequence_length=draw(st.sampled_from([128, 2048, 32768])),
        precision=draw(st.sampled_from(["bf16", "fp32"])),
        attention=draw(st.sampled_from(["flash", "eager"])),
    )


@st.composite
def situations(draw, names=tuple(RUNTIMES)):
    """(runtime, machine, workload, settled plan)."""
    runtime = RUNTIMES[draw(st.sampled_from(names))]
    machine, work = draw(machines()), draw(workloads())
    fields = {"dp_degree": float(machine.gpu_count)}
    for axis in runtime.axes(machine, work, code_changes=True):
        fields |= draw(st.sampled_from(axis.choices))
    fields["micro_batch_size"] = float(draw(st.sampled_from([1, 2, 3, 16])))
    fields["accumulation_steps"] = float(draw(st.sampled_from([1, 2, 8])))
    return runtime, machine, work, runtime.settle(machine, work, Plan(**fields))


def with_tier(machine, name, **update):
    """The machine with something of one tier changed."""
    tiers = machine.node.tiers
    changed = {**tiers, name: tiers[name].model_copy(update=update)}
    return replace(machine, node=machine.node.model_copy(update={"tiers": changed}))


def with_link(machine, name, factor):
    """The machine with one link so many times as fast."""
    links = machine.node.links
    link = links[name].model_copy(update={"bandwidth": factor * links[name].bandwidth})
    return replace(machine, node=machine.node.model_copy(update={"links": {**links, name: link}}))
