"""Other models of a job: how model.yaml and flags name them, and what of them is trained."""

import json

import pytest
from workload.models import built, shipped
from workload.small import SMALL

from ziplan.errors import BadInput
from ziplan.workload.companions import names_of, untrained, with_one_value
from ziplan.workload.load import load_workload

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}
LENGTH = {"sequence_length": 128}


@pytest.fixture
def job(tmp_path):
    """A model.yaml with these companions, loaded."""

    def load(*entries, flags=(), **overrides):
        (tmp_path / "critic").mkdir(exist_ok=True)
        (tmp_path / "critic" / "config.json").write_text(json.dumps(CONFIG))
        lines = [f"  - {{{entry}}}\n" for entry in entries]
        text = "model: llama-2-7b\ntraining: {sequence_length: 128}\ncompanions:\n" + "".join(lines)
        (tmp_path / "model.yaml").write_text(text if entries else text.removesuffix("companions:\n"))
        return load_workload(str(tmp_path / "model.yaml"), overrides, companions=flags).companions

    return load


def refused(job, *entries, flags=(), **overrides):
    with pytest.raises(BadInput) as caught:
        job(*entries, flags=flags, **overrides)
    return [(problem.line, f"{problem} {problem.help} {problem.hint}") for problem in caught.value.problems]


def test_roles_say_what_is_trained_and_what_has_one_value(job):
    found = {each.name: each for each in job(*(f"role: {r}, model: ./critic" for r in ROLES))}
    assert list(found) == list(ROLES)
    assert [each.trained for each in found.values()] == [False, False, True, False]
    head = CONFIG["vocab_size"] * CONFIG["hidden_size"]
    whole = found["reference"].model.params
    assert found["critic"].model.params == whole - head + CONFIG["hidden_size"]
    assert [each.model.logits_share for each in found.values()] == [1, 1, 0, 0]
    assert {each.offload for each in found.values()} == {"auto"}


ROLES = ("reference", "teacher", "critic", "reward")


def test_what_is_trained_can_be_said(job):
    some = "trainable: {lora_rank: 4, targets: [q_proj]}"
    frozen, whole, adapted, left = job(
        "role: critic, model: ./critic, trainable: none",
        "role: reward, model: ./critic, trainable: all, offload: cpu",
        f"role: reference, model: ./critic, {some}",
        "role: teacher, model: ./critic, trainable: {frozen: [embed_tokens]}",
    )
    assert frozen.model.trainable_params == 0
    assert whole.model.trainable_params == whole.model.params
    assert whole.offload == "cpu"
    assert adapted.model.trainable_params == 2 * 4 * (64 + 64)
    assert left.model.trainable_params == left.model.params - 100 * 64


def test_several_of_a_role_are_numbered(job):
    names = [each.name for each in job(*["role: reward, model: ./critic"] * 3)]
    assert names == names_of(["reward"] * 3) == ["reward", "reward-2", "reward-3"]


def test_a_job_has_companions_only_where_they_are_named(job):
    assert job() == ()


def test_flags_take_the_place_of_the_files(job):
    found = job(
        "role: reference, model: ./critic",
        flags=["teacher=llama-2-13b", "critic=opt-125m:none", "reward=gpt2:all"],
    )
    assert [(each.name, each.model.name, each.trained) for each in found] == [
        ("teacher", "llama-2-13b", False),
        ("critic", "opt-125m", False),
        ("reward", "gpt2", True),
    ]


def test_a_path_with_a_colon_is_a_path(job, tmp_path):
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (found,) = job(flags=[f"reference={folder}"])
    assert found.model.name == "a:b"


def test_settings_are_those_of_the_trained_model(job):
    (critic,) = job("role: critic, model: ./critic")
    main = load_workload("llama-2-7b", {**LENGTH, "micro_batch_size": 3, "precision": "fp16"})
    own = critic.workload(main)
    assert (own.training.micro_batch_size, own.precision) == (3, "fp16")
    assert own.training.trainable == "all"
    assert own.model is critic.model


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("role: refrence, model: gpt2", "did you mean `reference`?"),
        ("role: critic", "missing key `model`"),
        ("model: gpt2", "missing key `role`"),
        (
            "role: critic, model: gpt-2",
            "companions[0].model: 'gpt-2' is neither a shipped model shape nor a file",
        ),
        ("role: critic, model: ./nowhere", "companions[0].model: './nowhere'"),
        ("role: critic, model: 7", "companions[0].model"),
        ("role: critic, model: gpt2, trainable: some", "expected 'none' or 'all', not 'some'"),
        ("role: critic, model: gpt2, trainable: {lora_rank: 4}", "missing key `targets`"),
        ("role: critic, model: gpt2, trainable: {lora_rank: 4, targets: [q]}", "no linear in this model"),
        ("role: critic, model: gpt2, offload: nvme", "companions[0].offload"),
        ("role: critic, model: gpt2, offlod: cpu", "did you mean `offload`?"),
    ],
)
def test_a_mistake_is_told_where_it_stands(job, entry, said):
    ((line, told),) = refused(job, entry)
    assert line == 4
    assert said in told


def test_a_companion_takes_the_sequence_too(job):
    ((line, told),) = refused(job, "role: reward, model: ./critic", sequence_length=1024)
    assert line == 4
    assert "critic takes sequences of up to 512 tokens, not 1,024" in told


def test_every_mistake_is_told_at_once(job):
    assert [line for line, _ in refused(job, "role: reward, model: a", "role: critic, model: b")] == [4, 5]
    told = refused(job, flags=["reward", "judge=gpt2", "critic=gpt-2", "teacher=gpt2:none"])
    assert len(told) == 3
    for part in (
        "--companion 'reward' is not ROLE=MODEL",
        "role: expected 'reference'",
        "'gpt-2' is neither a shipped model shape nor a file",
    ):
        assert any(part in each for _, each in told), part


def test_too_many_are_a_slip(job):
    told = refused(job, *["role: reward, model: gpt2"] * 17)
    assert "companions" in told[0][1]


@pytest.mark.parametrize("family", SMALL)
def test_every_family_has_a_frozen_form_and_most_one_of_one_value(family):
    model = built(SMALL[family])
    assert untrained(model).trainable_params == 0
    assert untrained(model).params == model.params
    assert untrained(model).sections  # what stands in sections is what stands in operators
    assert not any(o.trainable for s in untrained(model).sections for layer in s.layers for o in layer)
    scored = with_one_value(model)
    (head,) = (operator for operator in scored.operators if operator.name == "score")
    assert head.out_features == 1
    assert scored.params < model.params + head.in_features + 1
    assert scored.block_params == model.block_params


def test_a_model_without_a_vocabulary_cannot_give_one_value():
    model = shipped("gpt2")
    headless = with_one_value(model)
    with pytest.raises(ValueError, match="no head over a vocabulary"):
        with_one_value(headless)
