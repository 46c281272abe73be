"""Names of measurements: what a profile is made from, and so what benchmarks and importers agree on.

| name | unit | what |
|---|---|---|
| `dram.copy_bandwidth` | B/s | bytes read and written, all cores |
| `dram.scale_bandwidth` | B/s | the same of a product with a number |
| `cpu.adam_rate` | param/s | optimizer update on the host, all cores |
| `cpu.core_adam_rate` | param/s | the same update by one thread on one core, nothing else at work |
| `storage.LABEL.read_bandwidth` | B/s | one folder alone (LABEL is that of the topology's folder) |
| `storage.LABEL.write_bandwidth` | B/s | sustained: the last third of the time |
| `storage.LABEL.write_burst_bandwidth` | B/s | the first five seconds |
| `storage.LABEL.mixed_read_bandwidth`, `.mixed_write_bandwidth` | B/s | while both go on |
| `storage.all.read_bandwidth`, `.write_bandwidth` | B/s | all folders at once, together |
| `gpu.count` | 1 | GPUs that CUDA shows |
| `gpu.I.name` | text | |
| `gpu.I.memory` | B | capacity |
| `gpu.I.hbm.copy_bandwidth` | B/s | bytes read and written |
| `gpu.I.hbm.read_bandwidth`, `.write_bandwidth` | B/s | |
| `gpu.I.host_to_device`, `gpu.I.device_to_host` | B/s | pinned, that GPU alone |
| `gpu.I.both.host_to_device`, `gpu.I.both.device_to_host` | B/s | while the other direction is busy |
| `gpu.all.host_to_device`, `gpu.all.device_to_host` | B/s | all GPUs at once, together |
| `gpu.I.beside_all.host_to_device`, `.device_to_host` | B/s | that GPU's part of it |
| `gpu.I.to.J` | B/s | one GPU to another, alone |
| `gpu.all.to_next` | B/s | each GPU to the next at once, the slowest of them |
| `gpu.I.matmul.PRECISION` | FLOP/s | a large matrix product |
| `chain.LABEL.gpu.I.bandwidth` | B/s | folder to pinned memory to GPU |
| `chain.LABEL.gpu.I.beside_copies_bandwidth` | B/s | the same beside copies to the GPU |
| `network.bandwidth` | B/s | bus bandwidth of a collective between nodes (imported) |
"""

from __future__ import annotations

import re

DRAM_COPY = "dram.copy_bandwidth"
DRAM_SCALE = "dram.scale_bandwidth"
ADAM_RATE = "cpu.adam_rate"
CORE_ADAM_RATE = "cpu.core_adam_rate"
GPU_COUNT = "gpu.count"
NETWORK = "network.bandwidth"

_UNITS = (
    (r"dram\..*|storage\..*|chain\..*|network\..*", "B/s"),
    (r"cpu\.(core_)?adam_rate", "param/s"),
    (r"gpu\.count", "1"),
    (r"gpu\.\d+\.memory", "B"),
    (r"gpu\.\d+\.matmul\..*", "FLOP/s"),
    (r"gpu\..*", "B/s"),
)
"""The first that a name is like."""


def unit_of(name: str) -> str:
    """The unit of a measurement by its name; empty where the name is none of those above."""
    return next((unit for pattern, unit in _UNITS if re.fullmatch(pattern, name)), "")


def storage(label: str, quantity: str) -> str:
    """The name of a folder's measurement ("read_bandwidth")."""
    return f"storage.{label}.{quantity}"


def gpu(index: int | str, quantity: str) -> str:
    """The name of a GPU's measurement ("host_to_device"); `index` "all" for all at once."""
    return f"gpu.{index}.{quantity}"


def chain(label: str, index: int, quantity: str = "bandwidth") -> str:
    """The name of a measurement from a folder through pinned memory to a GPU."""
    return f"chain.{label}.gpu.{index}.{quantity}"
