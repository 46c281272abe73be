"""Two layers of one matrix each, on rates that make every time a round number.

A layer has 2e6 parameters: 4e6 bytes in 16 bit. With 16 tokens it computes 64e6 FLOPs forward (1 s),
as much again where it is recomputed, and twice as much backward, but once in layer 0, which nothing
trained comes before. Two ranks on one node: a slice of a layer is 2e6 bytes, and as many come from the
other rank.
"""

from __future__ import annotations

from dataclasses import replace

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Node
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.workload.model import ActivationBytes, Model, Operator
from ziplan.workload.training import Training, Workload


def model(layers=2, width=2000) -> Model:
    """No embedding, no head, no attention of its own (its width is 0)."""
    matrix = Operator("matrix", "linear", 1000, width, count=layers)
    return Model("two", "gpt2", layers, 1000, 1, 0, 0, 0, (matrix,))


def work(layers=2, width=2000) -> Workload:
    training = Training.model_validate({"sequence_length": 16})
    return Workload(model(layers, width), training, "bf16", ActivationBytes(1000.0, 1000.0, 500.0, 500.0))


def machine(nodes=1, **more) -> Cluster:
    """For each of two ranks: 4 MB/s of drives, 20 MB/s of host link each way, 4 MB/s of fabric."""
    node = {
        "name": "Box",
        "gpu": {
            "name": "Chip",
            "memory": {"capacity": "1 GB"},
            "peak_flops_per_s": {"bf16": "128 MFLOP/s"},
            "sustained_flops_per_s": {"bf16": "64 MFLOP/s"},
            "matmul_flops_per_s": {"bf16": "64 MFLOP/s"},
        },
        "gpus_per_node": 2,
        "cpu": {"adam_params_per_s": "2 Mparam/s"},
        "tiers": {
            "hbm": {"medium": "hbm", "scope": "gpu", "capacity": "1 GB", "read_bandwidth": "56 MB/s"},
            "dram": {"medium": "dram", "scope": "node", "capacity": "1 TB", "via": ["host"]},
            "nvme": {
                "medium": "nvme",
                "scope": "node",
                "capacity": "1 TB",
                "read_bandwidth": "8 MB/s",
                "write_bandwidth": "8 MB/s",
                "via": ["host"],
            },
        },
        "links": {
            "host": {"bandwidth": "20 MB/s"},
            "fabric": {"bandwidth": "4 MB/s"},
            "net": {"bandwidth": "4 MB/s"},
        },
        "fabric": "fabric",
        "network": "net",
        **more,
    }
    return Cluster(Node.model_validate(node), nodes)


def products_alone(nodes=1, **more) -> Cluster:
    """The same with a GPU whose memory takes no time: what is no product takes none."""
    box = machine(nodes, **more)
    memory = box.node.tiers["hbm"].model_copy(update={"read_bandwidth": 1e30})
    return replace(box, node=box.node.model_copy(update={"tiers": {**box.node.tiers, "hbm": memory}}))


def plan(params="hbm", optimizer="hbm", **fields) -> Plan:
    homes = Placement({params: 1.0}, {optimizer: 1.0}, {optimizer: 1.0}, {"hbm": 1.0})
    defaults = {
        "dp_degree": 2.0,
        "placement": homes,
        "activation_checkpointing": float(Checkpointing.FULL),
        "prefetch_depth": 1.0,
        "optimizer_buffer_count": 0.0,
    }
    return Plan(**{**defaults, **fields})


def events(simulation, stage, *resources):
    """(begins, ends, resource, what for) of everything that takes time, in order; Python's if asked for."""
    (watched,) = (each.watched for each in simulation.stages if each.name == stage)
    found = []
    for each, task in zip(watched.works, watched.mine, strict=True):
        begins, ends = watched.played.start[task], watched.played.finish[task]
        asked = each.resource in resources if resources else each.resource != "python"
        if round(ends, 6) > round(begins, 6) and asked:
            found.append((round(begins, 6), round(ends, 6), each.resource, each.module))
    return sorted(found)
