"""What a prediction takes of the run that no plan has: the emitted files ask for it, or say it."""

import json

import pytest
from runtimes.test_emit import LAUNCHERS, emitted
from runtimes.toy import cluster, plan, workload

from ziplan.check.launch import Launch
from ziplan.plan import Checkpointing, Placement
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared.said import attention_of
from ziplan.workload.load import load_workload

SET = {
    (True, False): "expandable_segments:True,pinned_max_round_threshold_mb:1",
    (True, True): "expandable_segments:True",
    (False, False): "expandable_segments:False,pinned_max_round_threshold_mb:1",
    (False, True): "expandable_segments:False",
}


def of_fsdp(work):
    machine, fsdp = cluster(gpus=2, cpu={"cores": 64}), RUNTIMES["fsdp"]
    chosen = fsdp.settle(machine, work, plan(dp_degree=2.0))
    return fsdp.emit(machine, work, chosen)


def files_of(kind, work, nodes=1):
    return of_fsdp(work) if kind == "fsdp" else emitted(kind, nodes, work=work)


@pytest.mark.parametrize(("grow", "rounds"), SET)
@pytest.mark.parametrize("kind", [*LAUNCHERS, "fsdp"])
def test_every_script_sets_the_allocators_as_the_training_states(kind, grow, rounds):
    files = files_of(kind, workload(expandable_segments=grow, pinned_rounding=rounds))
    scripts = [name for name in files if name.startswith("launch") and name.endswith(".sh")]
    for name in scripts:
        assert f"export PYTORCH_ALLOC_CONF={SET[grow, rounds]}\n" in files[name]
        read = Launch(name, files[name])
        assert (read.expands_segments, read.keeps_pinned_sizes) == (grow, not rounds)
    assert scripts


def test_other_nodes_get_the_same():
    files = emitted(nodes=2, work=workload(expandable_segments=False, pinned_rounding=True))
    assert "PYTORCH_ALLOC_CONF=expandable_segments:False\n" in files[".deepspeed_env"]


STATED = {
    "plain": ({}, "kernels: eager, modules as transformers has them"),
    "compiled": ({"kernels": "compiled"}, "kernels: compiled, by "),
    "fused": ({"kernels": "fused"}, "kernels: fused, "),
    "loss": ({"loss": "fused"}, "loss: fused, "),
    "upcast": ({"loss": "upcast"}, "loss: taken of an fp32 copy"),
    "scores": ({"attention": "eager"}, 'attention: eager, attn_implementation="eager"'),
    "softmax": ({"attention": "eager", "softmax": "16-bit"}, "its softmax in 16 bits"),
    "flash": ({}, 'attn_implementation="sdpa" or "flash_attention_2"'),
    "dropout": ({"dropout": False}, "dropout: off"),
}


@pytest.mark.parametrize("case", STATED)
@pytest.mark.parametrize("kind", [*LAUNCHERS, "fsdp"])
def test_every_script_says_what_was_predicted_with(kind, case):
    settings, line = STATED[case]
    files = files_of(kind, workload(**settings))
    (said,) = (x for x in files["launch.sh"].splitlines() if line in x)
    assert said.startswith("#   ")
    assert len(said) <= 110
    if kind == "fsdp":
        assert line.split(", by")[0] in files["fsdp_setup.py"]
        compile(files["fsdp_setup.py"], "fsdp_setup.py", "exec")


@pytest.mark.parametrize("kind", ["none", "accelerate"])
def test_checkpoints_on_the_host_are_not_pytorchs(kind):
    homes = (Placement(checkpoints={home: 1.0}) for home in ("hbm", "dram"))
    full = {"activation_checkpointing": float(Checkpointing.FULL)}
    here, there = (emitted(kind, placement=home, **full)["launch.sh"] for home in homes)
    assert "gradient_checkpointing_enable(" in here
    assert "gradient_checkpointing_enable" not in there
    # Without the ranks' number DeepSpeed refuses the config's batch.
    begun = there.index("deepspeed.init_distributed()")
    assert begun < there.index('deepspeed.checkpointing.configure(None, deepspeed_config="ds_config.json")')
    assert Launch("", here).recomputes == "full"
    assert Launch("", there).recomputes == "full"


@pytest.mark.parametrize("mode", list(Checkpointing))
@pytest.mark.parametrize("kind", LAUNCHERS)
def test_every_script_says_what_is_recomputed(kind, mode):
    if kind == "huggingface" and mode == Checkpointing.SELECTIVE:
        pytest.skip("the Trainer recomputes whole layers")
    files = emitted(kind, activation_checkpointing=float(mode))
    for name, text in files.items():
        if name.startswith("launch") and name.endswith(".sh"):
            assert Launch(name, text).recomputes == mode.name.lower(), name


def test_other_scripts_say_it_by_what_they_call():
    assert Launch("", "torchrun train.py --gradient_checkpointing true").recomputes == "full"
    assert Launch("", "torchrun train.py").recomputes is None


def test_what_nobody_stated_is_not_said():
    assert "loss:" not in emitted()["launch.sh"]
    assert "dropout:" not in emitted()["launch.sh"]


FLASH_2 = 'a fused kernel, attn_implementation="flash_attention_2"'
FAMILIES = {
    "bloom-7b1": "a fused kernel, which transformers has none of for this family",
    "gemma-2-2b": FLASH_2,
    "mistral-7b": FLASH_2,  # its window is narrower than the sequence
    "llama-3.1-8b": 'a fused kernel, attn_implementation="sdpa" or "flash_attention_2"',
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fused_kernel_is_one_that_the_family_has(name):
    assert attention_of(load_workload(name, {"sequence_length": 8192}, ("bf16",))) == FAMILIES[name]


def arguments(**settings):
    family = settings.pop("family", "llama-3.1-8b")
    work = load_workload(family, {"sequence_length": 512, **settings}, ("bf16",))
    files = emitted("huggingface", work=work)
    keys = ("torch_compile", "use_liger_kernel", "liger_kernel_config")
    made = json.loads(files["trainer_args.json"])
    return {key: made[key] for key in keys if key in made}, files["launch.sh"]


def test_the_trainer_is_asked_for_what_it_can_do():
    """Liger's fused loss is of the head and the logits together: its other one gets fp32 copies of them."""
    assert arguments()[0] == arguments(kernels="eager", loss="upcast")[0] == {}
    assert arguments(kernels="compiled")[0] == {"torch_compile": True}
    fused, said = arguments(kernels="fused")
    assert fused == {
        "use_liger_kernel": True,
        "liger_kernel_config": {"cross_entropy": False, "fused_linear_cross_entropy": False},
    }
    assert "kernels: fused, by use_liger_kernel" in said
    both = arguments(kernels="fused", loss="fused")[0]["liger_kernel_config"]
    assert both == {"cross_entropy": False, "fused_linear_cross_entropy": True}
    alone = arguments(kernels="compiled", loss="fused")[0]
    assert alone["torch_compile"]
    assert alone["use_liger_kernel"]
    asked = {name for name, on in alone["liger_kernel_config"].items() if on}
    assert asked == {"fused_linear_cross_entropy"}


def test_liger_is_not_asked_for_a_family_that_it_leaves_alone():
    made, said = arguments(family="gpt2", kernels="fused", loss="fused")
    assert made == {}
    assert "kernels: fused, for norms, positions and activation functions: Liger's or Apex's" in said


def test_accelerate_compiles_layer_by_layer():
    """Under DeepSpeed its launcher reads none of it: the scripts export it."""
    lines = "dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: true\n"
    assert lines in of_fsdp(workload(kernels="compiled"))["accelerate_config.yaml"]
    assert "dynamo" not in of_fsdp(workload())["accelerate_config.yaml"]
    files = emitted("accelerate", work=workload(kernels="compiled"))
    assert "dynamo" not in files["accelerate_config.yaml"]
    for name in ("launch.sh", "launch_torchrun.sh", "launch_accelerate.sh"):
        assert "export ACCELERATE_DYNAMO_BACKEND=inductor\n" in files[name]
        assert "DYNAMO" not in emitted("accelerate")[name]
