"""What MODEL may be, how flags and files combine, and what is said about each kind of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from workload.loads import A100, CONFIG, LENGTH, refused

from ziplan.errors import BadInput
from ziplan.workload.load import list_shapes, load_model, load_workload


def test_a_shipped_shape_by_name():
    workload = load_workload("llama-3.1-8b", {"sequence_length": 4096, "micro_batch_size": None}, A100)
    assert workload.model.params == 8_030_261_248
    assert workload.model.source.startswith("https://")
    assert (workload.precision, workload.training.attention) == ("bf16", "flash")
    assert workload.training.micro_batch_size is None
    assert workload.activations.none_low > 0


@pytest.mark.parametrize("named", ["a/tiny/config.json", "a/tiny", "other.json"])
def test_a_config_or_its_folder(write, tmp_path, named):
    write("a/tiny/config.json", CONFIG)
    write("other.json", CONFIG)
    model = load_model(str(tmp_path / named))
    assert model.name == ("other" if named == "other.json" else "tiny")
    assert model.source.endswith(".json")
    assert (model.layer_count, model.key_value_heads, model.max_sequence_length) == (2, 2, 512)


@pytest.mark.parametrize("named", ["gpt2", "tiny/config.json", "tiny"])
def test_a_model_file_names_a_shape_or_a_path_beside_it(write, named):
    write("tiny/config.json", CONFIG)
    path = write("model.yaml", f"model: {named}\ntraining:\n  sequence_length: 256\n  precision: fp16\n")
    workload = load_workload(path, {}, A100)
    assert workload.model.name == named.partition("/")[0]
    assert (workload.training.sequence_length, workload.precision) == (256, "fp16")
    assert load_model(path) == workload.model


def test_a_model_file_with_a_shape_written_out(write):
    shape = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in CONFIG.items())
    path = write("mine.yaml", f"shape:\n{shape}training:\n  sequence_length: 512\n")
    assert load_workload(path, {}, A100).model.name == "mine"


def test_flags_win_over_the_file(write):
    path = write(
        "model.yaml",
        "model: gpt2\ntraining:\n  sequence_length: 256\n  micro_batch_size: 2\n  attention: eager\n"
        "  optimizer: {kind: adamw, learning_rate: 3e-4}\n",
    )
    flags = {
        "sequence_length": 1024,
        "global_batch_size": 64,
        "activation_checkpointing": "full",
        "micro_batch_size": None,
        "attention": None,
    }
    training = load_workload(path, flags, A100).training
    assert (training.sequence_length, training.global_batch_size, training.micro_batch_size) == (1024, 64, 2)
    assert (training.attention, training.activation_checkpointing) == ("eager", "full")
    assert load_workload(path, {"optimizer": "adamw"}, A100).training.optimizer.learning_rate == 3e-4


@pytest.mark.parametrize(
    ("precisions", "chosen"),
    [(A100, "bf16"), (("fp16", "fp32"), "fp16"), (("fp32",), "fp32"), ((), "bf16")],
)
def test_the_default_precision_is_the_best_the_gpu_has(precisions, chosen):
    assert load_workload("gpt2", LENGTH, precisions).precision == chosen


def test_a_bare_shape_asks_for_the_sequence_length():
    _, said = refused("gpt2", {})
    assert "--sequence-length" in said
    assert said.count("ZP0") == 1


def test_a_model_file_without_length_says_where_it_belongs(write):
    path = write("model.yaml", "model: gpt2\ntraining:\n  precision: bf16\n")
    places, said = refused(path, {})
    assert places == [(2, 1, "training: missing key `sequence_length`")]
    assert "--sequence-length" in said


def test_a_name_that_is_close():
    _, said = refused("lama-3.1-8b")
    assert "did you mean `llama-3.1-8b`?" in said


@pytest.mark.parametrize("argument", ["missing.yaml", "a/b", "./gpt2", "x" * 5000, "\0", ""])
def test_what_is_neither_a_name_nor_a_file(argument):
    refused(argument)


def test_a_shipped_name_wins_over_a_folder_of_that_name(write, tmp_path, monkeypatch):
    write("gpt2/config.json", CONFIG)
    monkeypatch.chdir(tmp_path)
    assert load_model("gpt2").family == "gpt2"
    assert load_model("./gpt2").family == "llama"


def test_a_folder_without_a_config(tmp_path):
    assert "no config.json" in refused(str(tmp_path))[1]


def test_everything_wrong_with_a_config_at_once(write):
    bad = {
        **CONFIG,
        "hidden_size": -64,
        "num_hidden_layers": 0,
        "num_attention_heads": "4",
        "vocab_size": 1.5,
    }
    del bad["intermediate_size"]
    places, said = refused(write("config.json", bad))
    assert [(line, column) for line, column, _ in places] == [(1, 1), (6, 18), (7, 24), (8, 26), (10, 17)]
    assert "missing key `intermediate_size`" in said
    assert "hidden_size: must be at least 1, not -64" in said


def test_problems_of_shape_training_and_flags_come_together(write):
    path = write(
        "model.yaml",
        "shape:\n  model_type: gpt2\n  n_embd: 65\n  n_head: 4\n  n_layer: 2\n  vocab_size: 9\n"
        "training:\n  sequence_lenght: 12\n  precision: fp8\n  trainable: {lora_rank: 16}\n"
        "  optimizer: {kind: adam}\n",
    )
    _, said = refused(path, {"micro_batch_size": 0})
    for part in (
        "shape.n_head: 4 does not divide n_embd (65)",
        "missing key `n_positions`",
        "unknown key `sequence_lenght`",
        "did you mean `sequence_length`?",
        "training.precision: expected 'fp32', 'fp16' or 'bf16'",
        "training.trainable: missing key `targets`",
        "optimizer.kind: expected 'adamw', 'adamw_8bit', 'adafactor', 'lion' or 'sgd', not 'adam'",
        "--micro-batch-size: must be at least 1, not 0",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training: {sequence_length: 8}\n", "name one model"),
        ("model: gpt2\nshape: {model_type: gpt2}\ntraining: {sequence_length: 8}\n", "not both"),
        ("model: {model_type: gpt2}\ntraining: {sequence_length: 8}\n", "goes under `shape:`"),
        ("model: 3\ntraining: {sequence_length: 8}\n", "model: expected text, not 3"),
        ("shape: gpt2\ntraining: {sequence_length: 8}\n", "shape: expected a mapping"),
        ("model: gpt3\ntraining: {sequence_length: 8}\n", "did you mean `gpt2`?"),
        ("model: gpt2\ntraining: 8\n", "training: expected a mapping"),
        ("model: gpt2\nmodle: gpt2\n", "did you mean `model`?"),
        ("- gpt2\n", "expected a mapping"),
        ("", "is empty"),
        ("model: gpt2\ntraining: {sequence_length: 2048}\n", "up to 1,024 tokens, not 2,048"),
    ],
)
def test_bad_model_files(write, text, said):
    places, everything = refused(write("model.yaml", text), {})
    assert said in everything
    assert len(places) == 1


def test_an_unsupported_model_type_is_answered_with_what_is_supported(write):
    places, said = refused(write("config.json", {**CONFIG, "model_type": "mamba"}))
    assert places == [(5, 17, "model_type: 'mamba' is not supported")]
    assert "bart, bert, blenderbot" in said


def test_a_sequence_longer_than_the_model_takes():
    assert (
        "--sequence-length: gpt2 takes sequences of up to 1,024 tokens"
        in refused("gpt2", {"sequence_length": 1025})[1]
    )


def test_every_gpu_computes_in_fp32_known_rate_or_not():
    assert load_workload("gpt2", {**LENGTH, "precision": "fp32"}, ("fp16",)).precision == "fp32"
    with pytest.raises(BadInput) as raised:
        load_workload("gpt2", {**LENGTH, "precision": "bf16"}, ("fp16",))
    (problem,) = raised.value.problems
    assert problem.help == "where it does, state how fast: --set gpu.peak_flops_per_s.bf16='100 TFLOP/s'"


def test_a_precision_that_the_gpu_lacks(write):
    assert (
        "--precision: no bf16 rate of this GPU is stated, so it is taken not to compute in it; it has fp16"
        in refused("gpt2", {**LENGTH, "precision": "bf16"}, ("fp16", "fp32"))[1]
    )
    path = write("model.yaml", "model: gpt2\ntraining:\n  sequence_length: 8\n  precision: bf16\n")
    places, _ = refused(path, {}, ("fp16", "fp32"))
    assert places[0][:2] == (4, 14)


def test_shipped_shapes_are_listed_and_state_their_source():
    for name in list_shapes():
        model = load_model(name)
        assert (model.name, "https://" in model.source or "Assumed" in model.source) == (name, True)


def test_loading_imports_no_engine():
    code = (
        "import sys; from ziplan.workload.load import load_workload; "
        "load_workload('gpt2', {'sequence_length': 8}, ()); "
        "print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_unsupported_optimizer_flag():
    known = "'adamw', 'adamw_8bit', 'adafactor', 'lion' or 'sgd'"
    assert refused("gpt2", {**LENGTH, "optimizer": "adam"})[0] == [
        (0, 0, f"--optimizer: expected {known}, not 'adam'")
    ]


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "examples").glob("*/model.yaml")), ids=str
)
def test_examples_load(path):
    assert load_workload(str(path), {}, A100).model.params > 0


def test_loading_a_shape_imports_its_family_alone():
    code = (
        "import sys; from ziplan.workload.load import load_model; load_model('bloom-176b'); "
        "names = [m for m in sys.modules if m.startswith('ziplan.workload.families.')]; "
        "print(*sorted(m.rpartition('.')[2] for m in names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["bloom", "build", "family", "kept", "moved"]


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_no_folder(name, tmp_path, monkeypatch):
    """Not even where the folder that one stands in has a config.json."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.yaml").write_text(f"model: '{name}'\n")
    for argument in (name, "model.yaml"):
        with pytest.raises(BadInput, match="neither a shipped model shape nor a file"):
            load_model(argument)


def test_what_a_config_says_and_the_plan_does_not_do_is_noted(tmp_path):
    path = tmp_path / "config.json"

    def notes(**more):
        path.write_text(json.dumps({**CONFIG, **more}))
        return load_model(str(path)).notes

    assert notes() == ()
    assert notes(quantization_config=None) == ()
    (quantized,) = notes(quantization_config={"quant_method": "mxfp4"})
    assert "`quantization_config` ('mxfp4'): planned without it" in quantized
    (odd,) = notes(quantization_config=["odd"])
    assert "`quantization_config`: planned without it" in odd
    (function,) = notes(hidden_act="xielu")
    assert "the activation function 'xielu' keeps for backward" in function
    assert len(notes(hidden_act="xielu", quantization_config={"bits": 4})) == 2


@pytest.mark.parametrize("name", list_shapes())
def test_shipped_shapes_are_planned_as_they_are(name):
    assert load_model(name).notes == ()
