"""Every rule: it fires where it should, and not next to it; its page and the table are whole."""

import re
from dataclasses import replace

import pytest
from check.asked import CPU, NVME, ZERO, Ask
from check.fixtures import FIXTURES

from ziplan.check.launch import Launch
from ziplan.check.rules import RULES
from ziplan.check.run import findings
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.errors import BadInput


def questions(which):
    return [
        pytest.param(code, ask, id=f"{code}-{number}")
        for code, both in FIXTURES.items()
        for number, ask in enumerate(both[which])
    ]


@pytest.mark.parametrize("code", RULES)
def test_a_rule_has_a_failing_and_a_passing_fixture(code):
    failing, passing = FIXTURES[code]
    assert failing
    assert passing


@pytest.mark.parametrize(("code", "ask"), questions(0))
def test_fires(tmp_path, code, ask):
    found = ask.found(tmp_path, RULES[code])
    assert found
    assert {each.code for each in found} == {code}
    assert {each.severity for each in found} == {RULES[code].severity}


@pytest.mark.parametrize(("code", "ask"), questions(1))
def test_does_not_fire(tmp_path, code, ask):
    assert not ask.found(tmp_path, RULES[code])


def test_the_table_is_in_order_and_every_page_is_whole():
    assert list(RULES) == sorted(RULES)
    assert len({rule.title for rule in RULES.values()}) == len(RULES)
    for code, rule in RULES.items():
        assert rule.code == code
        assert re.fullmatch("ZP[1-5][0-9]{2}", code)
        for text in (rule.what, rule.why, rule.example, rule.fix):
            assert len(text) > 3
            assert not text.endswith(" ")


def test_there_are_rules_for_every_range():
    assert {code[2] for code in RULES} == set("12345")


@pytest.mark.parametrize("code", RULES)
def test_a_finding_says_what_and_where_and_how(tmp_path, code):
    case = FIXTURES[code][0][0].case(tmp_path)
    for each in findings(case, [RULES[code]]):
        assert each.message
        assert not each.message.endswith(".")
        assert each.file
        if code not in ("ZP302", "ZP303", "ZP304", "ZP305", "ZP306"):
            assert each.fix or code == "ZP301"
        if each.path:
            assert each.line >= 1
            assert each.column >= 1


def test_what_memory_says_of_a_key_does_not_silence_that_it_is_rejected(tmp_path):
    """DeepSpeed raises on a section that is given twice, whether or not memory runs out in it."""
    path = tmp_path / "ds_config.json"
    path.write_text(
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},\n'
        ' "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},\n'
        ' "zero_optimization": {"stage": 3},\n'
        ' "zero_optimization": {"stage": 0}}'
    )
    request = Request("llama-3.1-8b", "dgx-a100-80g", training={"sequence_length": 2048})
    told = {each.code: each.path for each in findings(case_of(path, Asked(request)))}
    assert told["ZP101"] == told["ZP301"] == "zero_optimization"


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("deepspeed --num_gpus 2 train.py", 2),
        ("torchrun --standalone --nproc_per_node=4 train.py", 4),
        ("torchrun --nnodes 2 --nproc_per_node=8 train.py", 16),
        ("torchrun --nnodes $NODES --nproc_per_node=4 train.py", 16),
        ("deepspeed --hostfile hosts --num_gpus 4 train.py", 16),
        ("deepspeed --hostfile hosts --num_nodes 2 --num_gpus 8 train.py", 16),
        ("# deepspeed --num_gpus 2 train.py", 16),
        ("deepspeed train.py", 16),
    ],
)
def test_a_launch_script_says_how_many_ranks_there_are(tmp_path, line, ranks):
    """What it leaves to a variable or a file is a rank on every GPU, as without a script."""
    case = Ask(launch=line, cluster="2x dgx-a100-80g").case(tmp_path)
    assert case.plan.dp_degree == ranks
    with pytest.raises(BadInput, match=r"launch\.sh: .*32 ranks are started, and .* has 16 GPUs"):
        Ask(launch="torchrun --nnodes 4 --nproc_per_node 8 t.py", cluster="2x dgx-a100-80g").case(tmp_path)


@pytest.mark.parametrize("flags", ["--nnodes 2 --nproc_per_node=4", "--num_nodes 2 --num_gpus 4"])
def test_a_part_of_every_node_is_judged_where_the_machine_is_that_part(tmp_path, flags):
    """Eight ranks on two nodes are four on each: not one node's eight, which is what would be predicted."""
    asked = Ask(launch=f"run {flags} train.py", cluster="2x dgx-a100-80g")
    with pytest.raises(BadInput, match="8 ranks on 2 nodes are 4 on each, and a node has 8 GPUs"):
        asked.case(tmp_path)
    case = replace(asked, settings=("gpus_per_node=4",)).case(tmp_path)
    assert (case.plan.dp_degree, case.cluster.gpu_count) == (8, 8)


@pytest.mark.parametrize(("where", "stage", "divides"), [(CPU, 3, True), (CPU, 2, False), (NVME, 3, False)])
def test_a_share_on_the_gpu_is_proposed_where_deepspeed_divides_the_optimizer(
    tmp_path, where, stage, divides
):
    changes = {**where, "gradient_accumulation_steps": 1, f"{ZERO}.stage": stage}
    machine = ("cpu.adam_params_per_s=1 Gparam/s",)
    (found,) = Ask(changes, settings=machine).found(tmp_path, RULES["ZP205"])
    assert ("ratio" in found.fix) is divides


THREADS = {
    "deepspeed --num_gpus 8 --bind_cores_to_rank train.py": "bound",
    "export OMP_NUM_THREADS=8\ntorchrun train.py": 8,
    "OMP_NUM_THREADS='4' deepspeed train.py": 4,
    "OMP_NUM_THREADS=2 deepspeed --bind_cores_to_rank train.py": "bound",
    "export OMP_NUM_THREADS=$(($(nproc) / 8))\ntorchrun train.py": "bound",
    "accelerate launch --num_cpu_threads_per_process 6 train.py": 6,
    "OMP_NUM_THREADS=1 torchrun train.py": 1,
    "torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json": "torchrun",
    "python -m torch.distributed.launch --nproc_per_node=4 train.py": "torchrun",
    "srun accelerate launch --config_file a.yaml train.py": "accelerate",
    "deepspeed --num_gpus 8 train.py": "deepspeed",
    "# --bind_cores_to_rank\npython train.py": None,
    "python train.py --deepspeed ds_config.json": None,
}


@pytest.mark.parametrize("text", THREADS)
def test_a_launch_script_says_what_threads_a_rank_has(text):
    assert Launch("launch.sh", text).threads == THREADS[text]


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ("torchrun --nproc_per_node 8 t.py", "each of 8 ranks of a node 1 thread for CPU Adam"),
        ("OMP_NUM_THREADS=2 deepspeed --num_gpus 8 t.py", "each of 8 ranks of a node 2 threads for CPU Adam"),
        ("deepspeed --num_gpus 8 t.py", "get in each other's way"),
    ],
)
def test_few_threads_are_told_by_what_they_cost(tmp_path, launch, said):
    ask = Ask(CPU, launch=launch, settings=("cpu.core_bandwidth=2 GB/s", "cpu.cores=64"))
    (found,) = ask.found(tmp_path, RULES["ZP206"])
    assert said in found.message
    case = ask.case(tmp_path)
    lost = case.estimate.step_time - case.with_cores_divided.step_time
    assert lost == (pytest.approx(found.number.value) if found.number else 0)
    assert found.fix.endswith("OMP_NUM_THREADS=8")


@pytest.mark.parametrize(("threads", "crowded"), [(8, False), (9, True), (64, True)])
def test_more_threads_than_cores_are_told_with_what_lets_them_sleep(tmp_path, threads, crowded):
    ask = Ask(
        CPU, launch=f"OMP_NUM_THREADS={threads} torchrun --nproc_per_node 8 t.py", settings=("cpu.cores=64",)
    )
    found = list(ask.found(tmp_path, RULES["ZP206"]))
    assert bool(found) == crowded
    if crowded:
        assert f"each of 8 ranks {threads} threads, {8 * threads} on a node of 64 cores" in found[0].message
        assert "OMP_NUM_THREADS=8; where" in found[0].fix
        assert found[0].fix.endswith("OMP_WAIT_POLICY=passive")


def test_a_model_file_that_states_threads_has_the_last_word(tmp_path):
    stated = {"optimizer_threads": "bound"}
    ask = Ask(
        CPU,
        launch="torchrun --nproc_per_node 8 t.py",
        training=stated,
        settings=("cpu.core_bandwidth=1 GB/s",),
    )
    assert ask.case(tmp_path).workload.training.optimizer_threads == "bound"
    assert not ask.found(tmp_path, RULES["ZP206"])


LAUNCHES = {
    "ulimit -l unlimited": ("lifts_memlock",),
    "ulimit -Sl unlimited": ("lifts_memlock",),
    "ulimit -n 4096": (),
    "PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1": ("keeps_pinned_sizes",),
    "DS_PIN_MEMORY_BACKEND=native": ("keeps_pinned_sizes",),
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True": ("expands_segments",),
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False": (),
    "# train.py: model.gradient_checkpointing_enable()": ("recomputes",),
    "python train.py --gradient_checkpointing true": ("recomputes",),
    "# train.py: deepspeed.checkpointing.checkpoint(layer, hidden)": ("recomputes",),
    "python train.py --gradient_checkpointing false": (),
}


@pytest.mark.parametrize("text", LAUNCHES)
def test_what_a_launch_script_says(text):
    launch = Launch("launch.sh", text)
    every = ("expands_segments", "keeps_pinned_sizes", "lifts_memlock", "recomputes")
    assert tuple(name for name in every if getattr(launch, name)) == LAUNCHES[text]


ALLOCATORS = {
    # What the script says, what model.yaml says, and what counts: rounding, segments that grow.
    ("", ()): (True, False),
    ("", (False, True)): (False, True),
    ("pinned_max_round_threshold_mb:1", (True, True)): (False, True),
    ("expandable_segments:True", (True, False)): (True, True),
    ("expandable_segments:False", (False, True)): (False, False),
}


@pytest.mark.parametrize(("value", "stated"), ALLOCATORS)
def test_what_a_script_tells_the_allocators_counts_before_model_yaml(tmp_path, value, stated):
    training = dict(zip(("pinned_rounding", "expandable_segments"), stated, strict=bool(stated)))
    exported = f"export PYTORCH_ALLOC_CONF={value}\n" if value else ""
    ask = Ask(CPU, launch=f"{exported}torchrun --nproc_per_node 8 t.py", training=training)
    found = ask.case(tmp_path).workload.training
    assert (found.pinned_rounding, found.expandable_segments) == ALLOCATORS[value, stated]
