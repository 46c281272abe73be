"""Files that DeepSpeed's emitter writes: which, for whom, and what their launch lines run in a shell."""

import json
import os
import re
import subprocess

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.drawn import situations
from runtimes.toy import cluster, plan, workload

from ziplan.errors import CannotEmit
from ziplan.plan import Checkpointing, Placement
from ziplan.runtimes import RUNTIMES, deepspeed

LAUNCHERS = {
    "none": {"launch.sh"},
    "huggingface": {"launch.sh", "launch_torchrun.sh", "launch.sbatch"},
    "accelerate": {"launch.sh", "launch_torchrun.sh", "launch_accelerate.sh", "launch.sbatch"},
}
READ = {
    "none": set(),
    "huggingface": {"trainer_args.json"},
    "accelerate": {"accelerate_config.yaml"},
}
STUB = """#!/usr/bin/env bash
echo "$(basename "$0") $*"
env | grep -E '^(PYTORCH_ALLOC_CONF|OMP_NUM_THREADS|ACCELERATE_|HEAD_NODE)' | sort
"""
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
SLURM_NODEID=1 exec "$@"
"""
ADDRESS = {"HEAD_NODE": "first", "NODE_RANK": "0"}


def emitted(trainer="none", nodes=1, gpus=2, work=None, nvme_path="/drives", **fields):
    machine = cluster(nodes=nodes, gpus=gpus, cpu={"adam_params_per_s": "4 Gparam/s", "cores": 64})
    work = work or workload()
    chosen = deepspeed.settle(machine, work, plan(**{"dp_degree": float(nodes * gpus), **fields}))
    return deepspeed.emit(machine, work, chosen, nvme_path, trainer)


@pytest.fixture
def shell(tmp_path):
    """Runs an emitted script where launchers print how they were called; gives what they printed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    stubs = dict.fromkeys(("deepspeed", "torchrun", "accelerate"), STUB)
    stubs |= {"srun": SRUN, "scontrol": "#!/usr/bin/env bash\nprintf '%s\\n' first second\n"}
    for name, text in stubs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    def shell(files, name, environment=ADDRESS):
        for file, text in files.items():
            (tmp_path / file).write_text(text)
        path = f"{folder}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", name],
            cwd=tmp_path,
            env={"PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return shell


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("trainer", LAUNCHERS)
def test_a_trainer_gets_its_files_and_nobody_elses(trainer, nodes):
    remote = {".deepspeed_env"} if nodes > 1 else set()
    names = {"ds_config.json"} | LAUNCHERS[trainer] | READ[trainer] | remote
    assert set(emitted(trainer, nodes)) == names


@pytest.mark.parametrize("trainer", LAUNCHERS)
def test_the_config_is_the_same_for_every_trainer(trainer):
    assert emitted(trainer)["ds_config.json"] == emitted()["ds_config.json"]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(situations(("deepspeed",)), st.sampled_from(list(LAUNCHERS)))
def test_every_script_is_bash_without_auto_and_without_paths(situation, trainer):
    runtime, machine, work, chosen = situation
    try:
        files = runtime.emit(machine, work, chosen, trainer=trainer)
    except CannotEmit:
        assert trainer == "huggingface"
        assert chosen.placement.checkpoints.get("dram")
        return
    for name in LAUNCHERS[trainer]:
        subprocess.run(["bash", "-n"], input=files[name], text=True, check=True)
        worked_out = re.sub(r"\$\(\(.*\)\)", "", files[name])
        assert "/" not in worked_out.replace("#!/usr/bin/env", "").replace("/dev/null", "")
    for text in files.values():
        assert "auto" not in text


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("trainer", ["huggingface", "accelerate"])
def test_launch_lines_run_what_they_say(shell, trainer, nodes):
    files = emitted(trainer, nodes, optimizer="dram")
    argument = " trainer_args.json" if trainer == "huggingface" else ""
    many = ["", "--hostfile hostfile --num_nodes 2 "][nodes - 1]
    own, *environment = shell(files, "launch.sh").stdout.splitlines()
    assert own == f"deepspeed {many}--num_gpus 2 --bind_cores_to_rank --no_local_rank train.py{argument}"
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True,pinned_max_round_threshold_mb:1" in environment
    assert "OMP_NUM_THREADS=32" in environment
    assert ("ACCELERATE_DEEPSPEED_CONFIG_FILE=ds_config.json" in environment) == (trainer == "accelerate")
    where = ["--standalone", "--nnodes 2 --rdzv_backend c10d --rdzv_endpoint first:29500"][nodes - 1]
    torch = shell(files, "launch_torchrun.sh").stdout.splitlines()[0]
    assert torch == f"torchrun {where} --nproc_per_node 2 train.py{argument}"


def test_nothing_is_as_it_was_but_the_launch_line(shell):
    said = shell(emitted(nodes=2), "launch.sh").stdout.splitlines()[0]
    assert said == (
        "deepspeed --hostfile hostfile --num_nodes 2 --num_gpus 2 train.py "
        "--deepspeed --deepspeed_config ds_config.json"
    )


def test_accelerate_launches_each_node_by_its_rank(shell):
    said = shell(emitted("accelerate", 2), "launch_accelerate.sh").stdout.splitlines()
    assert said[0] == (
        "accelerate launch --config_file accelerate_config.yaml --machine_rank 0 "
        "--main_process_ip first --main_process_port 29500 train.py"
    )
    assert not [line for line in said if line.startswith("ACCELERATE_")]
    assert shell(emitted("accelerate"), "launch_accelerate.sh", {}).stdout.splitlines()[0] == (
        "accelerate launch --config_file accelerate_config.yaml train.py"
    )


@pytest.mark.parametrize("name", ["launch_torchrun.sh", "launch_accelerate.sh"])
def test_several_nodes_need_the_first_ones_name(shell, name):
    done = shell(emitted("accelerate", 2), name, {"NODE_RANK": "0"})
    assert done.returncode != 0
    assert "HEAD_NODE: set it to the name of the first node" in done.stderr


@pytest.mark.parametrize("trainer", ["huggingface", "accelerate"])
def test_slurm_starts_every_node(shell, trainer):
    files = emitted(trainer, 2)
    for line in ("nodes=2", "ntasks-per-node=1", "gpus-per-node=2", "cpus-per-task=64"):
        assert f"#SBATCH --{line}\n" in files["launch.sbatch"]
    done = shell(files, "launch.sbatch", {"SLURM_JOB_NODELIST": "first,second"})
    said = done.stdout.splitlines()
    assert "HEAD_NODE=first" in said, done.stderr
    begins = "accelerate launch --config_file accelerate_config.yaml --machine_rank 1 "
    assert said[0].startswith(begins if trainer == "accelerate" else "torchrun --nnodes 2 ")


@pytest.mark.parametrize(("here", "each"), [(64, 32), (1, 1)])
def test_where_nobody_stated_cores_the_machine_divides_them(shell, tmp_path, here, each):
    """Two ranks: torchrun would leave one thread to each."""
    (tmp_path / "bin" / "nproc").write_text(f"#!/bin/sh\necho {here}\n")
    (tmp_path / "bin" / "nproc").chmod(0o755)
    bare = cluster(gpus=2)
    work = workload(sequence_length=512)
    made = deepspeed.settle(bare, work, plan("dram", "dram", dp_degree=2.0))
    files = deepspeed.emit(bare, work, made, trainer="huggingface")
    assert "OMP_NUM_THREADS" not in files.get(".deepspeed_env", "")
    done = shell(files, "launch_torchrun.sh")
    assert f"OMP_NUM_THREADS={each}" in done.stdout.splitlines(), done.stderr


def test_threads_that_are_stated_are_set_and_no_cores_bound():
    machine = cluster(gpus=2, cpu={"cores": 64})
    work = workload(sequence_length=512, optimizer_threads=3)
    made = deepspeed.settle(machine, work, plan("dram", "dram", dp_degree=2.0))
    script = deepspeed.emit(machine, work, made)["launch.sh"]
    assert "OMP_NUM_THREADS=3\n" in script
    assert "bind_cores" not in script


def test_other_nodes_get_the_environment_too():
    lines = emitted("accelerate", 2, optimizer="dram")[".deepspeed_env"].splitlines()
    assert {line.partition("=")[0] for line in lines} == {
        "PYTORCH_ALLOC_CONF",
        "OMP_NUM_THREADS",
        "ACCELERATE_USE_DEEPSPEED",
        "ACCELERATE_DEEPSPEED_CONFIG_FILE",
        "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    }


def test_locked_memory_is_asked_for_where_something_swaps():
    assert "ulimit -l" in emitted(params="nvme", optimizer="nvme")["launch.sh"]
    assert "ulimit -l" not in emitted(params="dram", optimizer="dram")["launch.sh"]


def test_drives_are_where_the_caller_says():
    zero = json.loads(emitted(params="nvme", optimizer="nvme")["ds_config.json"])["zero_optimization"]
    assert {zero[part]["nvme_path"] for part in ("offload_param", "offload_optimizer")} == {"/drives"}


@pytest.mark.parametrize(("stage", "partitions"), [(2, False), (3, True)])
def test_accelerates_config_leaves_to_deepspeeds_what_is_deepspeeds(stage, partitions):
    document = yaml.safe_load(emitted("accelerate", 2, zero_stage=float(stage))["accelerate_config.yaml"])
    assert document["deepspeed_config"] == {
        "deepspeed_config_file": "ds_config.json",
        "deepspeed_multinode_launcher": "standard",
        "zero3_init_flag": partitions,
    }
    assert (document["num_machines"], document["num_processes"]) == (2, 4)
    assert "mixed_precision" not in document


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"activation_checkpointing": float(Checkpointing.SELECTIVE)}, "recomputes whole layers"),
        (
            {"placement": Placement(checkpoints={"dram": 1.0})},
            "keeps activation checkpoints on the GPU",
        ),
    ],
)
def test_what_the_trainer_cannot_do_is_refused(fields, said):
    with pytest.raises(CannotEmit, match=said):
        emitted("huggingface", **fields)
    assert emitted("accelerate", **fields)


@pytest.mark.parametrize(("name", "trainer"), [("deepspeed", "lightning"), ("fsdp", "huggingface")])
def test_a_trainer_without_files_is_refused(name, trainer):
    machine, work = cluster(), workload()
    with pytest.raises(CannotEmit, match=trainer):
        RUNTIMES[name].emit(machine, work, plan(), trainer=trainer)


def test_a_share_of_the_parameters_off_the_gpu_is_refused():
    """`offload_param` takes all of them; of those off the GPU some may be in DRAM (`max_in_cpu`)."""
    machine, work = cluster(gpus=2), workload()

    def reasons(**homes):
        placed = plan(dp_degree=2.0, placement=Placement(params=homes))
        return deepspeed.refusals(machine, work, placed)

    assert "offload_param has no share" in reasons(hbm=0.5, dram=0.5)[0]
    assert not reasons(hbm=1.0)
    assert not reasons(dram=0.5, nvme=0.5)
