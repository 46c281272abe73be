"""Which kernels transformers has for a family, and what is said where it has none."""

import inspect
from pathlib import Path

import pytest
from workload.hugging_face import hf_model
from workload.small import SMALL

from ziplan.errors import CannotEmit
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes import RUNTIMES
from ziplan.workload.families import FAMILIES
from ziplan.workload.kernels import EAGER_ALONE, EAGER_UNLESS_ASKED, OF_THEIR_OWN
from ziplan.workload.load import load_workload


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_those_of_transformers(family):
    real = hf_model(SMALL[family])
    fused, asked = real._supports_sdpa, real._supports_flash_attn
    assert (family in EAGER_ALONE) == (not fused and not asked)
    assert (family in EAGER_UNLESS_ASKED) == (not fused and asked)
    # What is taken unasked, which on a GPU is SDPA's own fused kernel where it can.
    assert real.config._attn_implementation == ("sdpa" if fused else "eager")
    source = Path(inspect.getsourcefile(type(real))).read_text(encoding="utf-8")
    assert (family in OF_THEIR_OWN) == ("ALL_ATTENTION_FUNCTIONS" not in source)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bloom-560m", "no fused attention"),
        ("mpt-7b", "no fused attention"),
        ("gemma-2-2b", "flash_attention_2"),
        ("gpt-oss-20b", "flash_attention_2"),
        ("llama-3.2-1b", ""),
    ],
)
def test_a_kernel_that_is_not_there_is_told_of(name, said):
    settings = {"sequence_length": 512}
    notes = [note for note in load_workload(name, settings, ("bf16",)).notes if "eager" in note]
    assert bool(notes) == bool(said)
    assert all(said in note for note in notes)
    eager = load_workload(name, {**settings, "attention": "eager"}, ("bf16",)).notes
    assert not any("eager" in note for note in eager)


@pytest.mark.parametrize(("name", "reached"), [("falcon-7b", False), ("llama-3.2-1b", True)])
def test_attention_is_recomputed_alone_where_it_can_be_reached(name, reached):
    work = load_workload(name, {"sequence_length": 512}, ("bf16",))
    machine, gpus = load_cluster("dgx-a100-80g"), {"dp_degree": 8.0}
    for runtime in ("fsdp", "deepspeed"):
        plan = Plan(activation_checkpointing=float(Checkpointing.SELECTIVE), **gpus)
        chosen = RUNTIMES[runtime].settle(machine, work, plan)
        if runtime == "fsdp" and not reached:
            with pytest.raises(CannotEmit, match="does not look its attention up"):
                RUNTIMES[runtime].emit(machine, work, chosen)
            continue
        files = RUNTIMES[runtime].emit(machine, work, chosen)
        assert any("ALL_ATTENTION_FUNCTIONS[" in text for text in files.values()) == reached
