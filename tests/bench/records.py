"""Records of nodes as a run would have left them."""

from ziplan.bench import names
from ziplan.bench.measurement import Noted, summary
from ziplan.bench.record import Environment, Record, with_results
from ziplan.bench.topology import FoundDrive, FoundFolder, FoundGpu, LinkState, PciDevice, Topology

GIB = 2**30


def measured(name, unit, value, spread=0.01, method="planted"):
    """Seven values around one."""
    return summary(name, unit, [value * (1 + spread * (index - 3) / 3) for index in range(7)], method)


def pci(address, speed=16.0, width=16):
    link = LinkState(speed=speed, width=width, most_speed=speed, most_width=width)
    return PciDevice(address=address, ancestry=("pci0000:00", address), link=link)


def drive(index, model="Samsung SSD 990 PRO 2TB"):
    return FoundDrive(
        name=f"nvme{index}n1",
        kind="nvme",
        model=model,
        size_bytes=2e12,
        pci=pci(f"0000:0{index + 5}:00.0", width=4),
    )


def folder(index, kind="drive", **more):
    return FoundFolder(
        path=f"/mnt/nvme{index}",
        label=f"nvme{index}n1",
        kind=kind,
        filesystem="ext4",
        drives=(f"nvme{index}n1",),
        free_bytes=1.5e12,
        size_bytes=2e12,
        **more,
    )


def topology(gpus=0, drives=1, **more):
    return Topology(
        host="node7",
        cpu="2 x Planted CPU",
        cores=32,
        cpus=tuple(range(32)),
        memory_bytes=512.0 * GIB,
        gpus=tuple(FoundGpu(pci=pci(f"0000:{index + 16}:00.0"), vendor="0x10de") for index in range(gpus)),
        drives=tuple(drive(index) for index in range(drives)),
        folders=tuple(folder(index) for index in range(drives)),
        **more,
    )


def cpu_only(drives=1):
    """A node without a GPU."""
    results = [
        measured(names.DRAM_COPY, "B/s", 200e9),
        measured(names.ADAM_RATE, "param/s", 5e9),
        measured(names.CORE_ADAM_RATE, "param/s", 1e9),
    ]
    for index in range(drives):
        results.append(measured(names.storage(f"nvme{index}n1", "read_bandwidth"), "B/s", 6e9))
        results.append(measured(names.storage(f"nvme{index}n1", "write_bandwidth"), "B/s", 2e9))
    if drives > 1:
        results.append(measured(names.storage("all", "read_bandwidth"), "B/s", drives * 4e9))
        results.append(measured(names.storage("all", "write_bandwidth"), "B/s", drives * 1e9))
    bare = Record(
        ziplan="0",
        started="2026-01-02T03:04:05Z",
        complete=True,
        topology=topology(drives=drives),
        environment=Environment(kernel="6.8", governor="performance"),
    )
    return with_results(bare, results)


def with_gpus(count=2, name="NVIDIA A100-SXM4-80GB", memory=79.25 * GIB):
    """The same with GPUs, the second of which is the slower one."""
    record = cpu_only()
    results = [measured(names.GPU_COUNT, "1", count, spread=0)]
    for index in range(count):
        slower = 1 - 0.1 * index
        results += [
            Noted(name=names.gpu(index, "name"), text=name, method="driver"),
            measured(names.gpu(index, "memory"), "B", memory, spread=0),
            measured(names.gpu(index, "hbm.copy_bandwidth"), "B/s", 1.75e12 * slower),
            measured(names.gpu(index, "host_to_device"), "B/s", 25e9),
            measured(names.gpu(index, "device_to_host"), "B/s", 24e9),
            measured(names.gpu(index, "beside_all.host_to_device"), "B/s", 14e9 * slower),
            measured(names.gpu(index, "beside_all.device_to_host"), "B/s", 15e9 * slower),
            measured(names.gpu(index, "matmul.bf16"), "FLOP/s", 270e12 * slower),
        ]
    results += [
        measured("gpu.all.host_to_device", "B/s", 14e9 * count),
        measured("gpu.all.to_next", "B/s", 230e9),
    ]
    return with_results(record.model_copy(update={"topology": topology(gpus=count)}), results)
