"""Findings of a config's text on a machine."""

from ziplan.check.run import findings
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request


def told(folder, text, name="ds_config.json", model="llama-3.1-8b", settings=(), **training):
    """Everything that is found in a config of this text."""
    path = folder / name
    path.write_text(text)
    training = {"sequence_length": 2048, "activation_checkpointing": "full", **training}
    return findings(
        case_of(path, Asked(Request(model, "dgx-a100-80g", settings=settings, training=training)))
    )
