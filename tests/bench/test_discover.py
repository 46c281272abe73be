"""A planted node is found as it is: devices, ways that are shared, folders down to drives, limits."""

import pytest
from bench.planted import SWITCH, Planted, server

from ziplan.bench.discover import drives, host
from ziplan.bench.discover.environment import environment, launched
from ziplan.bench.discover.root import Root, cpu_list
from ziplan.bench.discover.topology import chosen, discover, shared_ways


@pytest.fixture
def node(tmp_path):
    return server(tmp_path)


def found(node, *folders):
    return discover(folders or ("/",), Root(node.root))


def test_gpus_are_those_of_pci_with_their_ancestry(node):
    topology = found(node)
    assert [gpu.pci.address for gpu in topology.gpus] == ["0000:12:00.0", "0000:81:00.0"]
    first, second = topology.gpus
    assert first.pci.ancestry == ("pci0000:00", "0000:00:01.0", SWITCH, "0000:11:00.0", "0000:12:00.0")
    assert (first.vendor, first.pci.numa_node, second.pci.numa_node) == ("0x10de", 0, 1)
    assert (second.pci.link.speed, second.pci.link.most_speed, second.pci.link.width) == (2.5, 16.0, 16)


def test_processors_and_memory(node):
    topology = found(node)
    assert topology.cpu == "2 x Planted CPU"
    assert (topology.cores, topology.cpus) == (4, (0, 1, 2, 3))
    assert topology.numa_cpus == {0: (0, 1, 4, 5), 1: (2, 3, 6, 7)}
    assert topology.memory_bytes == 1_000_000 * 1024
    assert topology.memory_limit_bytes is None
    assert topology.host == "planted"


def test_a_folder_goes_down_to_its_drive_through_a_partition(node):
    (folder,) = found(node, "/").folders
    assert (folder.kind, folder.filesystem, folder.drives) == ("drive", "ext4", ("nvme0n1",))
    assert (folder.label, folder.through) == ("nvme0n1", ())
    (drive,) = found(node, "/").drives
    assert (drive.kind, drive.model, drive.size_bytes) == (
        "nvme",
        "Samsung SSD 990 PRO 2TB",
        2e12 // 512 * 512,
    )
    assert drive.pci.address == "0000:13:00.0"


def test_dm_over_md_goes_down_to_all_drives(node):
    (folder,) = found(node, "/mnt/raid").folders
    assert folder.drives == ("nvme1n1", "nvme2n1")
    assert folder.through == ("dm-0 crypt", "md0 raid0")
    assert folder.label == "dm-0"


def test_a_file_system_over_several_devices_is_found_by_its_source(node):
    (folder,) = found(node, "/mnt/pool").folders
    assert (folder.kind, folder.drives) == ("drive", ("nvme1n1",))


def test_a_mount_with_a_space(node):
    assert found(node, "/mnt/two words").folders[0].drives == ("nvme1n1",)


@pytest.mark.parametrize(("path", "kind"), [("/mnt/home", "network"), ("/dev/shm", "memory")])
def test_what_is_no_drive_of_the_node(node, path, kind):
    (folder,) = found(node, path).folders
    assert (folder.kind, folder.drives) == (kind, ())


def test_an_overlay_is_followed_to_where_it_writes_and_said_to_be_unknown_where_that_is_out_of_sight(node):
    node.folder("/mnt/raid/upper")
    options = "rw,lowerdir=/a,upperdir=/mnt/raid/upper,workdir=/b"
    node.mounts(
        ("/", "0:60", "overlay", "overlay", options),
        ("/mnt/raid", "253:0", "xfs", "/dev/mapper/secret", "rw"),
    )
    (folder,) = found(node, "/").folders
    assert (folder.drives, folder.through[0]) == (("nvme1n1", "nvme2n1"), "overlay")
    node.mounts(("/", "0:60", "overlay", "overlay", "rw,upperdir=/var/lib/docker/x/diff"))
    (folder,) = found(node, "/").folders
    assert (folder.kind, folder.drives) == ("unknown", ())


def test_a_namespace_of_several_controllers_is_of_the_first(node):
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys7"
    controller = "/sys/devices/virtual/nvme-fabrics/ctl/nvme7"
    node.file(f"{controller}/transport", "tcp")
    node.file(f"{controller}/model", "Far Away")
    device = node.block(subsystem, "nvme7n1", "259:9")
    node.link(f"{device}/device", subsystem)
    node.link(f"{subsystem}/nvme7", controller)
    drive = drives.drive(Root(node.root), "nvme7n1")
    assert (drive.kind, drive.model) == ("nvme-fabric", "Far Away")


@pytest.mark.parametrize(("name", "kind"), [("vda", "virtual"), ("loop3", "loop"), ("sda", "sata")])
def test_kinds_of_drives_by_name(node, name, kind):
    node.block("/sys/devices/virtual/block", name, "240:0")
    assert drives.drive(Root(node.root), name).kind == kind


def test_a_disk_of_a_hypervisor_is_virtual_whatever_its_name(node):
    device = node.block("/sys/devices/virtual/block", "sdb", "8:16")
    node.file(f"{device}/device/vendor", "QEMU    ")
    assert drives.drive(Root(node.root), "sdb").kind == "virtual"


def test_what_shares_a_switch_is_a_group_and_what_shares_a_host_bridge_is_not(node):
    (group,) = shared_ways(found(node, "/", "/mnt/raid"))
    assert group.shared == f"PCI {SWITCH}"
    assert group.members == ("GPU 0000:12:00.0", "nvme0n1")
    assert group.evidence == "topology"


def test_the_deepest_bridge_of_a_group_is_named(tmp_path):
    node = Planted(tmp_path)
    node.host()
    for index in (1, 2):
        node.gpu("pci0000:00", "0000:00:01.0", "0000:10:00.0", "0000:11:00.0", f"0000:12:0{index}.0")
    assert [group.shared for group in shared_ways(found(node))] == ["PCI 0000:11:00.0"]


def test_a_narrow_link_of_a_drive_is_warned_about_and_an_idle_gpu_is_not(node):
    warnings = environment(found(node, "/mnt/raid"), Root(node.root)).warnings
    assert "nvme2n1: its PCIe link runs x2, it could x4" in warnings
    assert "nvme2n1: its PCIe link runs at 8 GT/s, it could at 16 GT/s" in warnings
    assert not [each for each in warnings if each.startswith("GPU")]


def test_load_governor_and_quota_are_warned_about(node):
    node.file("/proc/loadavg", "3.00 1 1 1/2 3")
    node.file("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")
    node.file("/proc/self/cgroup", "0::/job/step")
    node.file("/sys/fs/cgroup/job/cpu.max", "150000 100000")
    topology = found(node)
    assert (topology.cpu_limit, topology.working_cpus) == (1.5, (0,))
    warnings = " ".join(environment(topology, Root(node.root)).warnings)
    assert "load was 3" in warnings
    assert "governor is performance, powersave" in warnings
    assert "1.5 of 4 cores" in warnings


def test_the_tightest_control_group_limits_memory(node):
    node.file("/proc/self/cgroup", "0::/job/step")
    node.file("/sys/fs/cgroup/job/memory.max", 512_000_000)
    node.file("/sys/fs/cgroup/job/step/memory.max", "max")
    assert host.memory_limit(Root(node.root)) == 512e6
    node.file("/sys/fs/cgroup/job/step/memory.max", 100_000_000)
    assert host.memory_limit(Root(node.root)) == 100e6


def test_the_first_version_of_control_groups(node):
    node.file("/proc/self/cgroup", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc")
    node.file("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", 300_000_000)
    node.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    node.file("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", 250000)
    node.file("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", 100000)
    assert host.memory_limit(Root(node.root)) == 300e6
    assert host.cpu_limit(Root(node.root)) == 2.5


def test_a_container_is_known_by_its_mark(node):
    assert host.container(Root(node.root)) == ""
    node.file("/.dockerenv", "")
    assert host.container(Root(node.root)) == "docker"


def test_nothing_at_all_is_a_node_of_which_little_is_known(tmp_path):
    topology = discover(("/nowhere",), Root(tmp_path))
    assert topology.gpus == ()
    assert topology.folders[0].kind == "unknown"
    assert environment(topology, Root(tmp_path)).load is None


def test_folders_are_chosen_once_for_each_drive(node):
    # / is where we are; the pool and the last mount are one drive, and it is in the raid.
    assert chosen(Root(node.root)) == ["/", "/mnt/raid"]


def test_labels_are_told_apart(node):
    labels = [folder.label for folder in found(node, "/", "/dev/shm", "/mnt/pool", "/mnt/two words").folders]
    assert labels == ["nvme0n1", "shm", "nvme1n1", "nvme1n1-2"]


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), ("5", (5,)), ("x-2,,1-", (1,))]
)
def test_lists_of_processors(text, cpus):
    assert cpu_list(text) == cpus


def test_the_launcher_is_told_by_its_variables():
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
    assert launched(slurm) == ("srun", 3, 8)
    assert launched({"OMPI_COMM_WORLD_RANK": "1", **slurm}) == ("mpirun", 1, None)
    assert launched({"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2"}) == ("torchrun", 0, 2)
    assert launched({"SLURM_PROCID": "x"}) == ("", None, None)
