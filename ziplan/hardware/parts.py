"""Parts that a machine is made of; one YAML file each under `hardware_profiles/`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ziplan.files.record import FileRecord
from ziplan.units import Bytes, BytesPerSecond, FlopsPerSecond, ParamsPerSecond, Precision, UnitError

MOST = 1_000_000
"""The largest count of anything in a machine that is taken seriously."""


def _positive(value: float) -> float:
    if value <= 0:
        raise UnitError("must be greater than 0; leave it out where it is unknown")
    return value


Size = Annotated[Bytes, AfterValidator(_positive)]
Bandwidth = Annotated[BytesPerSecond, AfterValidator(_positive)]
ComputeRate = Annotated[FlopsPerSecond, AfterValidator(_positive)]
UpdateRate = Annotated[ParamsPerSecond, AfterValidator(_positive)]


class Part(FileRecord):
    """A part of a machine."""


class Memory(Part):
    """A GPU's own memory."""

    capacity: Size
    bandwidth: Bandwidth | None = None


class Gpu(Part):
    """A GPU. A precision that is not listed is one that the GPU does not have.

    `peak_flops_per_s` is the dense data-sheet rate with fp32 accumulation,
    `sustained_flops_per_s` what training without offload was measured to reach (model FLOPs,
    nothing recomputed), `matmul_flops_per_s` the best of a matrix product alone: an upper bound. The
    rates of products in training follow from the sustained one (`ziplan.hardware.rates.matrix_rate`).
    `flash_2_flops_per_s` is what FlashAttention-2 reaches in forward and backward of causal attention, all
    that it computes counted (3.5 times forward's; arXiv:2307.08691).
    `multiprocessors` take a tile of a product each; None where products are not counted in waves.
    """

    name: str
    memory: Memory
    peak_flops_per_s: dict[Precision, ComputeRate] = Field(min_length=1)
    sustained_flops_per_s: dict[Precision, ComputeRate] = Field(default_factory=dict)
    matmul_flops_per_s: dict[Precision, ComputeRate] = Field(default_factory=dict)
    flash_2_flops_per_s: dict[Precision, ComputeRate] = Field(default_factory=dict)
    multiprocessors: int | None = Field(default=None, ge=1, le=MOST, strict=True)


class Drive(Part):
    """One drive. `write_bandwidth` is the sustained one; `endurance` the bytes it may be written."""

    name: str
    capacity: Size
    read_bandwidth: Bandwidth | None = None
    write_bandwidth: Bandwidth | None = None
    endurance: Size | None = None


class Link(Part):
    """A link that bytes cross, one direction. `shared_by` GPUs cross the same instance of it.

    A per-GPU PCIe slot is shared by 1, a root complex by the GPUs below it. `bandwidth` is what
    is achieved by one instance, not the theoretical rate. A node's network counts as shared by
    1: in a ring of all GPUs each of them sees the rate at which bytes enter its node. Over a `coherent`
    link a GPU reads all memory of its host, pinned or not, by the page table of the process.
    """

    name: str = ""
    bandwidth: Bandwidth
    shared_by: int = Field(default=1, ge=1, le=MOST, strict=True)
    coherent: bool | None = None


class Cpu(Part):
    """The host processors of a node, together.

    `sockets` are processors (None: two, as servers have), `adam_params_per_s` is what all their cores update.
    `core_bandwidth` is what one core, alone at work, reads from memory; a thread that updates is limited by
    it (`ziplan.hardware.rates.ADAM_FETCHED`). With `huge_pages` the system hands memory out in huge pages
    unasked (transparent_hugepage: always); None: not.
    """

    name: str = ""
    sockets: int | None = Field(default=None, ge=1, le=MOST, strict=True)
    cores: int | None = Field(default=None, ge=1, le=MOST, strict=True)
    adam_params_per_s: UpdateRate | None = None
    core_bandwidth: Bandwidth | None = None
    huge_pages: bool | None = None
