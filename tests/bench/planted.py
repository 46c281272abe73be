"""A root with /sys and /proc of a node that tests plant, as the kernel lays them out."""

import os
from pathlib import Path

SWITCH = "0000:10:00.0"
ROOT_PORT = "0000:00:01.0"


class Planted:
    """Writes files and links below a root; paths are those of the node."""

    def __init__(self, root: Path):
        self.root = root

    def at(self, path):
        return self.root / path.lstrip("/")

    def file(self, path, text):
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")

    def folder(self, path):
        self.at(path).mkdir(parents=True, exist_ok=True)

    def link(self, path, target):
        """A relative link, as the kernel makes them."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        self.folder(target)
        place.symlink_to(os.path.relpath(self.at(target), place.parent))

    def pci(self, ancestry, kind="0x060400", vendor="0x8086", numa=0, link=None, device="0x1234"):
        """A device by its ancestry, the host bridge first; its path under /sys."""
        path = "/sys/devices/" + "/".join(ancestry)
        self.file(f"{path}/class", kind)
        self.file(f"{path}/vendor", vendor)
        self.file(f"{path}/device", device)
        self.file(f"{path}/numa_node", numa)
        if link:
            speed, width, most_speed, most_width = link
            self.file(f"{path}/current_link_speed", f"{speed} GT/s PCIe")
            self.file(f"{path}/current_link_width", width)
            self.file(f"{path}/max_link_speed", f"{most_speed} GT/s PCIe")
            self.file(f"{path}/max_link_width", most_width)
        self.link(f"/sys/bus/pci/devices/{ancestry[-1]}", path)
        return path

    def gpu(self, *ancestry, numa=0, link=("16.0", 16, "16.0", 16)):
        return self.pci(ancestry, kind="0x030200", vendor="0x10de", numa=numa, link=link)

    def block(self, path, name, number, sectors=1000):
        """A block device at a path under /sys."""
        device = f"{path}/{name}"
        self.file(f"{device}/size", sectors)
        self.file(f"{device}/dev", number)
        self.link(f"/sys/class/block/{name}", device)
        self.link(f"/sys/dev/block/{number}", device)
        return device

    def nvme(
        self, index, *ancestry, number, numa=0, link=("16.0", 4, "16.0", 4), model="Samsung SSD 990 PRO 2TB"
    ):
        """An NVMe drive: controller nvmeN with namespace nvmeNn1."""
        controller = f"{self.pci(ancestry, kind='0x010802', numa=numa, link=link)}/nvme/nvme{index}"
        self.file(f"{controller}/transport", "pcie")
        self.file(f"{controller}/address", ancestry[-1])
        self.file(f"{controller}/model", f"{model}        ")
        device = self.block(controller, f"nvme{index}n1", number, sectors=2_000_000_000_000 // 512)
        self.link(f"{device}/device", controller)
        return device

    def over(self, name, number, below, **files):
        """A device of md or dm over others."""
        device = self.block("/sys/devices/virtual/block", name, number)
        for path, text in files.items():
            self.file(f"{device}/{path.replace('__', '/')}", text)
        for slave in below:
            self.link(f"{device}/slaves/{slave}", self.real(f"/sys/class/block/{slave}"))
        return device

    def partition(self, device, name, number):
        path = self.block(device, name, number)
        self.file(f"{path}/partition", 1)
        return path

    def real(self, path):
        return "/" + str(Path(os.path.realpath(self.at(path))).relative_to(os.path.realpath(self.root)))

    def mounts(self, *entries):
        """(point, number, file system, source, options) each."""
        lines = [
            f"{20 + index} 1 {number} / {point} rw,relatime - {kind} {source} {options}"
            for index, (point, number, kind, source, options) in enumerate(entries)
        ]
        self.file("/proc/self/mountinfo", "\n".join(lines))
        for point, *_ in entries:
            self.folder(point)

    def host(self, cpus=8, threads=2, nodes=2, memory_kb=1_000_000):
        """Processors: siblings are i and i + cpus/threads, as most machines number them."""
        cores = cpus // threads
        self.file("/proc/meminfo", f"MemTotal:       {memory_kb} kB\nMemFree: 1 kB")
        self.file("/proc/cpuinfo", "processor : 0\nmodel name\t: Planted CPU\nprocessor : 1")
        self.file("/sys/devices/system/cpu/online", f"0-{cpus - 1}")
        for cpu in range(cpus):
            siblings = ",".join(str(cpu % cores + cores * thread) for thread in range(threads))
            place = f"/sys/devices/system/cpu/cpu{cpu}"
            self.file(f"{place}/topology/thread_siblings_list", siblings)
            self.file(f"{place}/topology/physical_package_id", cpu % cores * nodes // cores)
            self.file(f"{place}/cpufreq/scaling_governor", "performance")
        for node in range(nodes):
            own = [cpu for cpu in range(cpus) if cpu % cores * nodes // cores == node]
            self.file(f"/sys/devices/system/node/node{node}/cpulist", ",".join(map(str, own)))
        self.file("/proc/loadavg", "0.00 0.01 0.05 1/100 1234")
        self.file("/proc/sys/kernel/hostname", "planted")
        self.file("/proc/sys/kernel/osrelease", "6.8.0")


def server(root):
    """Two GPUs and two drives, one of each behind a switch; a third drive in too narrow a slot."""
    node = Planted(root)
    node.host()
    behind = ("pci0000:00", ROOT_PORT, SWITCH)
    node.pci(("pci0000:00", ROOT_PORT))
    node.pci(behind)
    node.gpu(*behind, "0000:11:00.0", "0000:12:00.0")
    node.nvme(0, *behind, "0000:11:01.0", "0000:13:00.0", number="259:0")
    node.pci(("pci0000:80", "0000:80:01.0"), numa=1)
    # Idle: its link is trained down.
    node.gpu("pci0000:80", "0000:80:01.0", "0000:81:00.0", numa=1, link=("2.5", 16, "16.0", 16))
    node.nvme(1, "pci0000:80", "0000:80:02.0", "0000:82:00.0", number="259:1", numa=1)
    node.nvme(
        2, "pci0000:80", "0000:80:03.0", "0000:83:00.0", number="259:2", numa=1, link=("8.0", 2, "16.0", 4)
    )
    # A management controller's display is no GPU to train on.
    node.pci(("pci0000:80", "0000:80:04.0"), kind="0x030000", vendor="0x1a03")
    node.partition(node.real("/sys/class/block/nvme0n1"), "nvme0n1p1", "259:5")
    node.over("md0", "9:0", ["nvme1n1", "nvme2n1"], md__level="raid0")
    node.over("dm-0", "253:0", ["md0"], dm__uuid="CRYPT-LUKS2-abc")
    node.mounts(
        ("/", "259:5", "ext4", "/dev/nvme0n1p1", "rw"),
        ("/mnt/raid", "253:0", "xfs", "/dev/mapper/secret", "rw"),
        ("/mnt/home", "0:50", "nfs4", "server:/home", "rw"),
        ("/dev/shm", "0:25", "tmpfs", "tmpfs", "rw"),
        ("/mnt/pool", "0:51", "btrfs", "/dev/nvme1n1", "rw"),
        ("/mnt/two\\040words", "259:1", "ext4", "/dev/nvme1n1", "rw"),
    )
    return node
