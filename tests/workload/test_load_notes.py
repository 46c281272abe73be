"""What the answer notes of training settings."""

from ziplan.workload.load import load_workload


def test_an_init_that_divides_the_model_is_said_to_be_of_stage_3():
    def notes(**loading):
        return load_workload("gpt2", {"sequence_length": 16, "loading": loading}, ("bf16",)).notes

    assert any(note.startswith("zero_init: is stage 3's alone") for note in notes(zero_init=True))
    assert not notes(zero_init=False)
    assert not notes()
