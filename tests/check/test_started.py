"""Ranks and nodes that a config or a launch script starts, held against those of the cluster."""

import json

import pytest
from check.asked import BASE
from cli.runs import ziplan

RUN = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048", "--checkpointing", "full")


def test_more_ranks_than_gpus_is_refused(capsys, tmp_path):
    accelerate = tmp_path / "accelerate.yaml"
    accelerate.write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 16\ndeepspeed_config: {zero_stage: 3}\n"
    )
    ran = ziplan(capsys, "check", accelerate, *RUN)
    assert ran.code == 2
    assert "16 ranks" in ran.err


NODES = "distributed_type: {kind}\nnum_processes: {ranks}\nnum_machines: {nodes}\nmachine_rank: 0\n"
KINDS = {
    "DEEPSPEED": "deepspeed_config: {zero_stage: 3}\n",
    "FSDP": "fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n",
}


def started(capsys, path, cluster, *more):
    ran = ziplan(capsys, "check", path, RUN[0], cluster, *RUN[2:], "--micro-batch-size", "1", *more)
    return ran.code, " ".join(ran.err.split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ranks", "nodes", "cluster", "said"),
    [
        (8, 2, "dgx-a100-80g", "ranks are started on 2 nodes, and DGX A100 80GB is 1 node"),
        (8, 1, "2x dgx-a100-80g", "ranks are started on 1 node, and 2 x DGX A100 80GB is 2 nodes"),
        (8, 2, "2x dgx-a100-80g", "8 ranks on 2 nodes are 4 on each, and a node has 8 GPUs"),
        (16, 2, "2x dgx-a100-80g", ""),
        (4, 1, "dgx-a100-80g", ""),
    ],
)
def test_nodes_that_accelerate_starts_are_those_of_the_cluster(
    capsys, tmp_path, kind, ranks, nodes, cluster, said
):
    path = tmp_path / "accelerate.yaml"
    path.write_text(NODES.format(kind=kind, ranks=ranks, nodes=nodes) + KINDS[kind])
    code, err = started(capsys, path, cluster)
    assert (code == 2) == bool(said)
    assert said in err
    if said:
        assert "accelerate.yaml: " in err


def test_nodes_that_a_launch_script_starts_are_those_of_the_cluster(capsys, tmp_path):
    path, script = tmp_path / "ds_config.json", tmp_path / "run.sh"
    path.write_text(json.dumps(BASE))
    script.write_text("torchrun --nnodes=2 --nproc_per_node=4 train.py\n")
    code, err = started(capsys, path, "dgx-a100-80g", "--launch", script)
    assert code == 2
    assert "run.sh: ZP001 ranks are started on 2 nodes" in err
    script.write_text("accelerate launch --config_file a.yaml --num_machines 2 train.py\n")
    (tmp_path / "a.yaml").write_text(NODES.format(kind="DEEPSPEED", ranks=8, nodes=1) + KINDS["DEEPSPEED"])
    assert started(capsys, script, "dgx-a100-80g")[0] == 2
    script.write_text("accelerate launch --config_file a.yaml train.py\n")
    assert started(capsys, script, "2x dgx-a100-80g")[0] == 2
    assert started(capsys, script, "dgx-a100-80g")[0] != 2


def test_gpus_that_no_rank_is_started_on_are_told(capsys, tmp_path):
    path = tmp_path / "accelerate.yaml"
    path.write_text(NODES.format(kind="DEEPSPEED", ranks=4, nodes=1) + KINDS["DEEPSPEED"])
    ran = ziplan(capsys, "check", path, *RUN, "--micro-batch-size", "1")
    assert "DGX A100 80GB (4 of 8 GPUs)" in " ".join(ran.out.split())


@pytest.mark.parametrize("nodes", ["two", "0", "1.5"])
def test_a_number_of_nodes_that_is_none_is_refused_at_its_place(capsys, tmp_path, nodes):
    path = tmp_path / "accelerate.yaml"
    path.write_text(NODES.format(kind="DEEPSPEED", ranks=8, nodes=nodes) + KINDS["DEEPSPEED"])
    code, err = started(capsys, path, "dgx-a100-80g")
    assert code == 2
    assert "accelerate.yaml:3:15: ZP010 num_machines: expected a whole number of at least 1" in err


@pytest.mark.parametrize("trainer", ["none", "huggingface", "accelerate"])
@pytest.mark.parametrize("mode", ["none", "full"])
def test_what_is_recomputed_is_read_from_the_script_beside(capsys, tmp_path, trainer, mode):
    """The config that `fit` wrote is the plan that it printed, whoever runs the loop."""
    asked = ("llama-3.1-8b", "dgx-a100-80g", "--sequence-length", "2048")
    written = (
        "--global-batch-size",
        "64",
        "--trainer",
        trainer,
        "--checkpointing",
        mode,
        "--out",
        tmp_path / "plan",
        "--json",
    )
    planned = json.loads(ziplan(capsys, "fit", *asked, *written).out)
    found = json.loads(ziplan(capsys, "check", tmp_path / "plan" / "ds_config.json", *asked, "--json").out)
    assert found["plan"]["activation_checkpointing"] == mode
    assert found["verdict"] == planned["verdict"]
    assert not [each for each in found["findings"] if each["code"] == "ZP307"]
    assert found["estimate"]["step_time_s"] == pytest.approx(planned["estimate"]["step_time_s"])
