"""Parts that a machine is made of; one YAML file each under `hardware_profiles/`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ziplan.units import Bytes, BytesPerSecond, FlopsPerSecond, ParamsPerSecond, Precision


class Part(BaseModel):
    """A frozen record of a file; keys it does not know are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Memory(Part):
    """A GPU's own memory."""

    capacity: Bytes
    bandwidth: BytesPerSecond | None = None


class Gpu(Part):
    """A GPU. A precision that is not listed is one that the GPU does not have.

    `peak_flops_per_s` is the dense data-sheet rate with fp32 accumulation,
    `sustained_flops_per_s` what training without offload was measured to reach.
    """

    name: str
    memory: Memory
    peak_flops_per_s: dict[Precision, FlopsPerSecond]
    sustained_flops_per_s: dict[Precision, FlopsPerSecond] = Field(default_factory=dict)


class Drive(Part):
    """One drive. `write_bandwidth` is the sustained one; `endurance` the bytes it may be written."""

    name: str
    capacity: Bytes
    read_bandwidth: BytesPerSecond | None = None
    write_bandwidth: BytesPerSecond | None = None
    endurance: Bytes | None = None


class Link(Part):
    """A link that bytes cross, one direction. `shared_by` GPUs cross the same instance of it.

    A per-GPU PCIe slot is shared by 1, a root complex by the GPUs below it, the node's NICs by
    all GPUs of the node. `bandwidth` is what is achieved by one instance, not the theoretical rate.
    """

    name: str = ""
    bandwidth: BytesPerSecond
    shared_by: int = Field(default=1, ge=1)


class Cpu(Part):
    """The host processors of a node, together."""

    name: str = ""
    cores: int | None = Field(default=None, ge=1)
    adam_params_per_s: ParamsPerSecond | None = None
