"""The plan that a config amounts to, and what is emitted read back."""

import json
import math

import pytest
from reading.asking import reading_of

from ziplan.hardware.profiles import load_cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.reading import settled_plan, stated_training
from ziplan.runtimes.deepspeed.reading.settle import kept_in_cpu
from ziplan.workload.load import load_workload

GPU, HOST, NVME = "hbm", "dram", "nvme"


@pytest.fixture(scope="module")
def cluster():
    return load_cluster("dgx-a100-80g", [])


def workload_of(name="llama-3.1-8b", **training):
    return load_workload(
        name, {"sequence_length": 2048, "precision": "bf16", **training}, ("bf16", "fp16", "fp32")
    )


def zero(**keys):
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "zero_optimization": keys,
    }


def settled(tmp_path, cluster, config, **training):
    reading = reading_of(tmp_path, config, ranks=8, trainer="none")
    assert reading.accepted, reading.remarks
    return settled_plan(reading, cluster, workload_of(**{"activation_checkpointing": "none", **training}))


@pytest.mark.parametrize(
    ("keys", "params", "optimizer"),
    [
        ({"stage": 0}, {GPU: 1}, {GPU: 1}),
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, {GPU: 1}, {HOST: 1}),
        ({"stage": 1, "offload_optimizer": {"device": "nvme"}}, {GPU: 1}, {HOST: 1}),
        ({"stage": 2, "offload_param": {"device": "cpu"}}, {GPU: 1}, {GPU: 1}),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, {HOST: 1}, {GPU: 1}),
        ({"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"}}, {GPU: 1}, {NVME: 1}),
        (
            {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x", "max_in_cpu": 0}},
            {NVME: 1},
            {GPU: 1},
        ),
        # 8e9 parameters over 8 ranks are a billion each, of which the default keeps whole sub-groups in DRAM.
        (
            {
                "stage": 3,
                "sub_group_size": 2e9,
                "offload_param": {"device": "nvme", "nvme_path": "/x", "max_in_cpu": 2e9},
            },
            {HOST: 1},
            {GPU: 1},
        ),
    ],
)
def test_where_state_lives(tmp_path, cluster, keys, params, optimizer):
    plan = settled(tmp_path, cluster, zero(**keys)).plan
    assert plan.placement.params == params
    assert plan.placement.optimizer == plan.placement.grads == optimizer
    assert (plan.micro_batch_size, plan.accumulation_steps, plan.dp_degree) == (2, 4, 8)


def test_a_ratio_acts_on_whole_sub_groups(tmp_path, cluster):
    keys = {"stage": 3, "sub_group_size": 1e8, "offload_optimizer": {"device": "cpu", "ratio": 0.75}}
    homes = settled(tmp_path, cluster, zero(**keys)).plan.placement.optimizer
    assert homes[GPU] == pytest.approx(0.25, abs=0.06)
    assert sum(homes.values()) == 1
    one = {"stage": 3, "sub_group_size": 2e9, "offload_optimizer": {"device": "cpu", "ratio": 0.75}}
    assert settled(tmp_path, cluster, zero(**one)).plan.placement.optimizer == {HOST: 1}


def test_sub_groups_stay_in_dram_from_the_first_while_they_fit():
    assert kept_in_cpu((4.0, 4.0, 2.0), 10) == 1
    assert kept_in_cpu((4.0, 4.0, 2.0), 9) == 0.8
    assert kept_in_cpu((4.0, 4.0, 2.0), 3) == 0


def test_buffers_and_tiles_are_those_stated(tmp_path, cluster):
    keys = {
        "stage": 3,
        "sub_group_size": 5e7,
        "offload_param": {"device": "nvme", "nvme_path": "/x", "buffer_count": 9, "max_in_cpu": 0},
        "offload_optimizer": {"device": "nvme", "nvme_path": "/x", "buffer_count": 8},
    }
    plan = settled(tmp_path, cluster, zero(**keys)).plan
    assert (plan.param_buffer_count, plan.optimizer_buffer_count, plan.sub_group_params) == (9, 8, 5e7)
    assert plan.prefetch_depth == 0
    cpu = {
        "stage": 3,
        "offload_param": {"device": "cpu", "buffer_count": 9},
        "stage3_prefetch_bucket_size": 5e8,
    }
    plan = settled(tmp_path, cluster, zero(**cpu)).plan
    assert plan.param_buffer_count == 0
    assert plan.prefetch_depth == math.ceil(5e8 / workload_of().model.largest_layer_params)


def test_recomputation_is_the_scripts_unless_arguments_say(tmp_path, cluster):
    unsaid = settled(tmp_path, cluster, zero(stage=3), activation_checkpointing="auto")
    assert unsaid.plan.activation_checkpointing == Checkpointing.NONE
    assert [remark.kind for remark in unsaid.remarks] == ["unknown"]
    said = settled(tmp_path, cluster, zero(stage=3), activation_checkpointing="full")
    assert (said.plan.activation_checkpointing, said.remarks) == (Checkpointing.FULL, ())
    arguments = {
        "deepspeed": zero(stage=3),
        "bf16": True,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
    }
    reading = reading_of(tmp_path, {**arguments, "gradient_checkpointing": True}, "args.json", ranks=8)
    assert settled_plan(reading, cluster, workload_of()).plan.activation_checkpointing == Checkpointing.FULL
    assert stated_training(reading)["activation_checkpointing"] == "full"


def test_checkpoints_go_to_the_host_only_with_deepspeeds_function(tmp_path, cluster):
    config = {**zero(stage=3), "activation_checkpointing": {"cpu_checkpointing": True}}
    plan = settled(tmp_path, cluster, config, activation_checkpointing="full").plan
    assert plan.placement.checkpoints == {HOST: 1}
    assert settled(tmp_path, cluster, config).plan.placement.checkpoints == {GPU: 1}


def test_a_machine_without_the_tier(tmp_path):
    small = load_cluster("rtx-4090-desktop", [])
    tiers = {name: tier for name, tier in small.node.tiers.items() if tier.medium != "nvme"}
    bare = small.__class__(small.node.model_copy(update={"tiers": tiers}))
    keys = {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"}}
    answer = settled(tmp_path, bare, zero(**keys))
    assert answer.plan is None
    assert "no NVMe" in answer.remarks[0].message


def test_training_that_the_config_states(tmp_path):
    config = {
        **zero(stage=3, stage3_gather_16bit_weights_on_model_save=True),
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        },
    }
    assert stated_training(reading_of(tmp_path, config, ranks=8, trainer="none")) == {
        "precision": "bf16",
        "micro_batch_size": 2,
        "accumulation_steps": 4,
        "saving": "gathered",
        "optimizer": {
            "kind": "adamw",
            "learning_rate": 1e-4,
            "weight_decay": 0.1,
            "epsilon": 1e-8,
            "beta1": 0.9,
            "beta2": 0.95,
        },
    }
    assert stated_training(reading_of(tmp_path, {"train_batch_size": "auto"}, trainer="none")) == {}


@pytest.mark.parametrize(("norm", "clipped"), [(0.0, False), (0.5, None), (None, None)])
def test_a_largest_norm_of_nothing_clips_nothing(tmp_path, norm, clipped):
    config = zero(stage=2) if norm is None else {**zero(stage=2), "gradient_clipping": norm}
    found = stated_training(reading_of(tmp_path, config, ranks=8, trainer="none"))
    assert found.get("gradient_clipping") is clipped


@pytest.mark.parametrize(("stated", "fused"), [(True, False), (False, None), (None, None)])
def test_pytorchs_own_adamw_is_one_of_single_operators(tmp_path, stated, fused):
    params = {"lr": 1e-4} if stated is None else {"lr": 1e-4, "torch_adam": stated}
    config = {**zero(stage=3), "optimizer": {"type": "AdamW", "params": params}}
    found = stated_training(reading_of(tmp_path, config, ranks=8, trainer="none"))["optimizer"]
    assert found.get("fused") is fused


HOMES = [
    (0, GPU, GPU),
    (2, GPU, HOST),
    (3, GPU, GPU),
    (3, HOST, HOST),
    (3, NVME, NVME),
    (3, HOST, NVME),
]


@pytest.mark.parametrize(("stage", "params", "optimizer"), HOMES)
@pytest.mark.parametrize("trainer", ["none", "huggingface", "accelerate"])
def test_what_is_emitted_reads_back_as_the_plan_and_its_settings(
    tmp_path, cluster, stage, params, optimizer, trainer
):
    workload = workload_of(activation_checkpointing="full")
    placement = Placement({params: 1.0}, {optimizer: 1.0}, {optimizer: 1.0}, {GPU: 1.0})
    wanted = Plan(
        dp_degree=8.0,
        zero_stage=float(stage),
        placement=placement,
        micro_batch_size=2.0,
        accumulation_steps=3.0,
        activation_checkpointing=Checkpointing.FULL,
        sub_group_params=1e8,
        optimizer_buffer_count=12.0,
    )
    plan = deepspeed.settle(cluster, workload, wanted)
    for name, text in deepspeed.emit(cluster, workload, plan, trainer=trainer).items():
        (tmp_path / name).write_text(text)
    names = {
        "none": "ds_config.json",
        "huggingface": "trainer_args.json",
        "accelerate": "accelerate_config.yaml",
    }
    text = (tmp_path / names[trainer]).read_text()
    reading = reading_of(tmp_path, text, names[trainer], ranks=8, hidden_size=4096)
    assert {remark.kind for remark in reading.remarks} <= {"derived"}, reading.remarks
    answer = settled_plan(reading, cluster, workload)
    found = answer.plan
    if stage < 3:  # a plan below stage 3 has no tiles and fetches nothing
        found = found.__class__(
            **{**vars(found), "sub_group_params": 1e8, "prefetch_depth": plan.prefetch_depth}
        )
    assert found == plan
    facts = Facts(Derivation(record=False), cluster, workload, plan)
    settings = reading.settings
    if stage == 3:
        knobs = facts.knobs
        assert settings.prefetch_bucket_size == math.ceil(knobs.prefetch_bucket)
        assert settings.max_live_parameters == math.ceil(knobs.max_live)
        assert settings.max_reuse_distance == math.ceil(knobs.reuse_distance)
        assert settings.reduce_bucket_size == math.ceil(knobs.reduce_bucket)
    assert settings.types.compute == "bf16"


def test_every_value_of_settings_is_json(tmp_path):
    settings = reading_of(tmp_path, zero(stage=3), ranks=8, trainer="none").settings
    assert json.loads(json.dumps(settings._asdict()))["stage"] == 3
