"""A small model that DeepSpeed was run with, and machines simple enough to reckon with by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Node
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes.deepspeed.fetches import Fetches
from ziplan.workload.model import ActivationBytes, Model, Operator
from ziplan.workload.passes import Passes
from ziplan.workload.training import Training, Workload

HIDDEN, MIDDLE, VOCABULARY = 1024, 4096, 2048


def toy(layers=2, hidden=HIDDEN, middle=MIDDLE, vocabulary=VOCABULARY) -> Model:
    """A decoder of LayerNorms with biases and linears without, head not tied."""

    def linear(name, inputs, outputs):
        return Operator(name, "linear", inputs, outputs, count=layers)

    def norm(name, count, block):
        return Operator(name, "norm", hidden, hidden, count=count, bias=True, block=block)

    operators = (
        Operator("emb", "embedding", hidden, vocabulary, block=False),
        norm("ln1", layers, True),
        linear("qkv", hidden, 3 * hidden),
        linear("o", hidden, hidden),
        norm("ln2", layers, True),
        linear("up", hidden, middle),
        linear("down", middle, hidden),
        norm("ln", 1, False),
        Operator("head", "linear", hidden, vocabulary, block=False),
    )
    return Model("toy", "gpt2", layers, hidden, vocabulary, 8, 8, hidden // 8, operators)


def workload(model=None, **training) -> Workload:
    """The toy under settings; activations of 34 to 60 hidden bytes a token and layer."""
    model = model or toy()
    settings = Training.model_validate({"sequence_length": 16, **training})
    low, high = 34.0 * model.d_model, 60.0 * model.d_model
    moved = Passes(2 * high, 3 * high)
    kept = ActivationBytes(low, high, low / 2, high / 2, fused=moved, written=moved)
    return Workload(model, settings, settings.precision or "bf16", kept)


def cluster(nodes=1, gpus=1, hbm="80 GB", dram="2 TB", nvme: str | None = "30 TB", **more) -> Cluster:
    """A machine with round rates: 100 TFLOP/s, 20 GB/s to the host, 5 GB/s of drives."""
    tiers = {
        "hbm": {"medium": "hbm", "scope": "gpu", "capacity": hbm, "read_bandwidth": "2 TB/s"},
        "dram": {
            "medium": "dram",
            "scope": "node",
            "capacity": dram,
            "read_bandwidth": "200 GB/s",
            "via": ["host"],
        },
    }
    if nvme:
        tiers["nvme"] = {
            "medium": "nvme",
            "scope": "node",
            "capacity": nvme,
            "read_bandwidth": "5 GB/s",
            "write_bandwidth": "2 GB/s",
            "via": ["host"],
        }
    node = {
        "name": "Box",
        "gpu": {
            "name": "Chip",
            "memory": {"capacity": hbm},
            "peak_flops_per_s": {"bf16": "200 TFLOP/s", "fp32": "50 TFLOP/s"},
            "sustained_flops_per_s": {"bf16": "100 TFLOP/s", "fp32": "20 TFLOP/s"},
        },
        "gpus_per_node": gpus,
        "cpu": {"adam_params_per_s": "4 Gparam/s"},
        "tiers": tiers,
        "links": {
            "host": {"bandwidth": "20 GB/s"},
            "fabric": {"bandwidth": "300 GB/s"},
            "network": {"bandwidth": "50 GB/s"},
        },
        "fabric": "fabric",
        "network": "network",
        **more,
    }
    return Cluster(Node.model_validate(node), nodes)


def plan(params="hbm", optimizer="hbm", **fields) -> Plan:
    """Everything whole on one tier each; gradients live where the optimizer lives."""
    homes = Placement({params: 1.0}, {optimizer: 1.0}, {optimizer: 1.0}, {"hbm": 1.0})
    return Plan(
        **{
            "dp_degree": 1.0,
            "placement": homes,
            "activation_checkpointing": float(Checkpointing.FULL),
            "prefetch_depth": 0.0,
            "optimizer_buffer_count": 4.0,
            **fields,
        }
    )


def assert_alike(one: Fetches, other: Fetches) -> None:
    """Fetches that are the same, counts to the last element, longest ways but for what ends a micro-step."""
    assert one._replace(ways=None, work=0.0) == other._replace(ways=None, work=0.0)
    assert one.work == pytest.approx(other.work)
    np.testing.assert_allclose(one.ways, other.ways, rtol=0.02, atol=0.02 * one.elements)
