"""What the article starts from, and the figures worked out from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ziplan.hardware.cluster import Cluster
from ziplan.hardware.profiles import load_cluster
from ziplan.laws.law import Derivation, Step


@dataclass(frozen=True)
class Inputs:
    """What the article starts from, in base units."""

    # The machine: rates of one GPU, of its links, of one drive.
    sustained_flops_per_s: float
    hbm_bandwidth: float
    dram_bandwidth: float
    nvme_bandwidth: float
    gather_bandwidth: float
    drives_per_node: float
    drive_capacity: float
    # The model and the run.
    usable_hbm_per_gpu: float = 50e9
    params: float = 1e12
    layer_count: float = 128
    d_model: float = 25600
    dp_degree: float = 64
    tokens_per_rank: float = 4096
    sequence_length: float = 2048
    large_batch_size: float = 16
    tile_count: float = 8
    node_count: float = 64
    # What a parameter costs.
    forward_flops: float = 2
    recompute_flops: float = 2
    backward_flops: float = 4
    param_bytes: float = 2
    grad_bytes: float = 2
    optimizer_state_bytes: float = 12
    optimizer_flops: float = 12
    optimizer_bytes: float = 24
    optimizer_bytes_deepspeed: float = 30
    params_per_squared_width: float = 12
    tokens_per_param: float = 20
    # The compute ceiling.
    cluster_flops_per_s: float = 1e19
    year_length: float = 31_557_600

    @classmethod
    def on(cls, cluster: Cluster) -> Inputs:
        """The article's run on this cluster's nodes: rates and capacities are the machine's."""
        node = cluster.node
        rate = {**node.gpu.peak_flops_per_s, **node.gpu.sustained_flops_per_s}
        tiers = {tier.medium: tier for tier in node.tiers.values()}
        drive = tiers["nvme"].drive
        assert drive is not None, "the flash tier is made of drives"
        assert node.fabric is not None, "the GPUs gather over a link"
        return cls(
            sustained_flops_per_s=rate["fp16"],
            hbm_bandwidth=_known(tiers["hbm"].read_bandwidth),
            dram_bandwidth=min(node.links[name].bandwidth for name in tiers["dram"].via),
            nvme_bandwidth=_known(drive.read_bandwidth),
            gather_bandwidth=node.links[node.fabric].bandwidth,
            drives_per_node=tiers["nvme"].drive_count,
            drive_capacity=drive.capacity,
        )


def _known(bandwidth: float | None) -> float:
    assert bandwidth is not None, "the profile states this bandwidth"
    return bandwidth


def given_inputs() -> Inputs:
    """The article's run on the article's machine, a shipped profile."""
    return Inputs.on(load_cluster("article"))


@dataclass(frozen=True)
class Figure:
    """One figure: its row in the article or the name of what the article leaves out.

    `printed` is what the article says, `value` the exact number in `unit`, `steps` the laws
    applied for it; the last step gave the value.
    """

    key: str
    quantity: str
    printed: str
    value: float
    unit: str
    steps: tuple[Step, ...]
    note: str = ""

    @property
    def in_article(self) -> bool:
        """Whether the article prints it; otherwise it is something that a planner must add."""
        return self.key.isdigit()


@dataclass
class Book:
    """The figures so far, and the derivation that they share."""

    derivation: Derivation = field(default_factory=Derivation)
    figures: dict[str, Figure] = field(default_factory=dict)
    written: int = 0

    def add(self, key: str, quantity: str, printed: str = "", note: str = "") -> None:
        """Enter the last law applied as a figure, with the steps since the figure before."""
        steps = tuple(self.derivation.steps[self.written :])
        self.written = len(self.derivation.steps)
        last = steps[-1]
        unit = last.law.units["return"].symbol
        self.figures[key] = Figure(key, quantity, printed, float(last.value), unit, steps, note)

    def value(self, key: str) -> float:
        """The value of a figure entered before."""
        return self.figures[key].value
