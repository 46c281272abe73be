"""accelerate's FSDP config: read as accelerate reads it, and what ziplan emits reads back as its plan."""

import os
from unittest import mock

import pytest
import yaml

from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.errors import BadInput
from ziplan.files import read_text
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.fsdp.reading import read_fsdp
from ziplan.workload.load import load_workload

SECTION = {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
MODEL, MACHINE = "llama-3.1-8b", "dgx-a100-80g"


def _text(section=(), **top):
    return yaml.safe_dump({"distributed_type": "FSDP", "fsdp_config": {**SECTION, **dict(section)}, **top})


def _read(section=(), **top):
    return read_fsdp(read_text(_text(section, **top), "own.yaml"))


def _case(folder, text, **training):
    path = folder / "own.yaml"
    path.write_text(text)
    return case_of(path, Asked(Request(MODEL, MACHINE, training={"sequence_length": 2048, **training})))


def _told(folder, section=(), **top):
    return {(each.kind, each.path): each for each in _case(folder, _text(section, **top)).remarks}


@pytest.mark.parametrize("home", ["hbm", "dram"])
@pytest.mark.parametrize("mode", ["none", "full"])
def test_what_is_emitted_reads_back_as_the_plan(tmp_path, home, mode):
    cluster, runtime = load_cluster(MACHINE), RUNTIMES["fsdp"]
    training = {"sequence_length": 2048, "precision": "bf16", "activation_checkpointing": mode}
    workload = load_workload(MODEL, training, ("bf16",))
    states = {home: 1.0}
    plan = runtime.settle(
        cluster,
        workload,
        Plan(
            dp_degree=8.0,
            zero_stage=3.0,
            placement=Placement(states, states, states, {"hbm": 1.0}),
            micro_batch_size=2.0,
            accumulation_steps=4.0,
            activation_checkpointing=float(Checkpointing.named(mode)),
        ),
    )
    text = runtime.emit(cluster, workload, plan, trainer="accelerate")["accelerate_config.yaml"]
    stated = {"micro_batch_size": 2, "accumulation_steps": 4}
    # Where the config recomputes nothing the script may: it is the command line's to say.
    case = _case(tmp_path, text, **stated, **({} if mode == "full" else {"activation_checkpointing": mode}))
    assert case.plan == plan
    assert case.runtime.NAME == "fsdp"
    assert not case.remarks
    assert case.workload.precision == "bf16"
    assert case.estimate.verdict in ("fits", "tight", "does_not_fit")


def test_whether_a_script_recomputes_is_open_unless_the_config_does(tmp_path):
    case = _case(tmp_path, _text(mixed_precision="bf16"), micro_batch_size=1)
    assert case.plan.activation_checkpointing == Checkpointing.NONE
    assert case.other_plan.activation_checkpointing == Checkpointing.FULL
    case = _case(tmp_path, _text({"fsdp_activation_checkpointing": True}), micro_batch_size=1)
    assert case.plan.activation_checkpointing == Checkpointing.FULL
    assert case.other_plan is None


def test_accumulation_and_recomputation_that_nobody_states_are_asked_for(tmp_path):
    def asked_for(**training):
        remarks = _case(tmp_path, _text(mixed_precision="bf16"), micro_batch_size=2, **training).remarks
        assert {each.kind for each in remarks} <= {"unknown"}
        return " ".join(each.message for each in remarks)

    assert "how many micro-steps are accumulated" in asked_for()
    assert "whether layers are recomputed" in asked_for()
    assert "accumulated" not in asked_for(accumulation_steps=1)
    assert "recomputed" not in asked_for(activation_checkpointing="full")


@pytest.mark.parametrize(
    ("stated", "steps"),
    [
        ({"global_batch_size": 64}, 4),
        ({"global_batch_size": 16}, 1),
        ({"global_batch_size": 20}, 1),
        ({"global_batch_size": 64, "accumulation_steps": 2}, 2),
        ({"accumulation_steps": 8}, 8),
        ({}, 1),
    ],
)
def test_accumulation_follows_from_a_global_batch(tmp_path, stated, steps):
    case = _case(tmp_path, _text(mixed_precision="bf16"), micro_batch_size=2, **stated)
    assert case.plan.accumulation_steps == steps
    unsaid = stated in ({}, {"global_batch_size": 20})
    assert any("accumulated" in each.message for each in case.remarks) == unsaid


def test_a_launch_script_says_what_is_recomputed(tmp_path):
    (tmp_path / "launch.sh").write_text("#   recomputation: none\ntorchrun train.py\n")
    case = _case(tmp_path, _text(mixed_precision="bf16"), micro_batch_size=2, accumulation_steps=1)
    assert not case.remarks
    assert case.other_plan is None


def test_a_micro_batch_that_nobody_states_is_asked_for(tmp_path):
    case = _case(tmp_path, _text(mixed_precision="bf16"))
    assert case.plan is None
    ((kind, fix),) = [(each.kind, each.fix) for each in case.remarks]
    assert kind == "unknown"
    assert "--micro-batch-size" in fix


def test_a_finding_is_at_the_key_that_decides(tmp_path):
    from ziplan.check.run import findings

    text = _text({"fsdp_offload_params": True}, mixed_precision="bf16")
    found = {each.code: each for each in findings(_case(tmp_path, text, micro_batch_size=1))}
    assert found["ZP215"].path == "fsdp_config.fsdp_offload_params"
    assert found["ZP215"].line == 4


@pytest.mark.parametrize(
    ("section", "kind", "path"),
    [
        ({"fsdp_forward_prefetch": True}, "ignored", "fsdp_config.fsdp_forward_prefetch"),
        ({"fsdp_sharding_strategy": "FULL_SHARD"}, "ignored", "fsdp_config.fsdp_sharding_strategy"),
        ({"fsdp_ofload_params": True}, "ignored", "fsdp_config.fsdp_ofload_params"),
        ({"fsdp_offload_params": "maybe"}, "rejected", "fsdp_config.fsdp_offload_params"),
        ({"fsdp_auto_wrap_policy": "BY_HAND"}, "rejected", "fsdp_config.fsdp_auto_wrap_policy"),
        ({"fsdp_sync_module_states": False}, "rejected", "fsdp_config.fsdp_sync_module_states"),
        (
            {"fsdp_activation_checkpointing_offload": True},
            "rejected",
            "fsdp_config.fsdp_activation_checkpointing_offload",
        ),
    ],
)
def test_what_is_ignored_and_what_is_refused(tmp_path, section, kind, path):
    told = _told(tmp_path, section)
    assert (kind, path) in told
    assert told[kind, path].line > 0


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"fsdp_version": 1}, "only FSDP2 is planned"),
        ({"fsdp_reshard_after_forward": False}, "not planned"),
        ({"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}, "one layer each"),
        (
            {"fsdp_activation_checkpointing": True, "fsdp_activation_checkpointing_offload": True},
            "stay on the GPU",
        ),
    ],
)
def test_what_is_not_planned_is_no_answer(tmp_path, section, said):
    with pytest.raises(BadInput, match=said) as refused:
        _case(tmp_path, _text(section), micro_batch_size=1)
    assert all(each.help and each.line for each in refused.value.problems)


SECTIONS = [
    {},
    {"fsdp_offload_params": True},
    {"fsdp_offload_params": "yes", "fsdp_state_dict_type": "FULL_STATE_DICT"},
    {"fsdp_activation_checkpointing": True, "fsdp_cpu_ram_efficient_loading": False},
    {"fsdp_use_orig_params": False, "fsdp_forward_prefetch": True, "fsdp_backward_prefetch": "BACKWARD_PRE"},
    {"offload_params": True, "fsdp_sharding_strategy": "HYBRID_SHARD"},
    {"fsdp_offload_params": "maybe"},
    {"fsdp_reshard_after_forward": "FULL_SHARD"},
    {"fsdp_auto_wrap_policy": "BY_HAND"},
    {"fsdp_activation_checkpointing_offload": True},
    {"fsdp_sync_module_states": False},
]


@pytest.mark.engine
@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_accelerate_reads_the_same(tmp_path, section):
    """What `accelerate launch` puts into the environment, and what its plugin makes of that."""
    path = tmp_path / "own.yaml"
    top = {"compute_environment": "LOCAL_MACHINE", "num_processes": 2, "num_machines": 1, "machine_rank": 0}
    more = {"mixed_precision": "bf16", "use_cpu": False, "main_training_function": "main"}
    path.write_text(_text(section, **top, **more))
    reading = read_fsdp(read_text(path.read_text(), "own.yaml"))
    try:
        plugin = _plugin(path)
    except ValueError:
        assert reading.sharded is None
        return
    sharded = reading.sharded
    assert sharded.version == plugin.fsdp_version == 2
    assert sharded.reshard_after_forward == plugin.reshard_after_forward
    assert sharded.offload_params == (type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy")
    assert sharded.activation_checkpointing == plugin.activation_checkpointing
    assert sharded.cpu_ram_efficient_loading == plugin.cpu_ram_efficient_loading
    assert sharded.state_dict_type == plugin.state_dict_type.name


def _plugin(path):
    pytest.importorskip("torch")
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.dataclasses import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    args = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    with mock.patch.dict(os.environ):
        args, _, _ = _validate_launch_command(args)
        environment = prepare_multi_gpu_env(args)
    with mock.patch.dict(os.environ, environment, clear=True):
        return FullyShardedDataParallelPlugin()
