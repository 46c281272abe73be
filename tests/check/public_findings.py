"""What `check` says of the configs that people copy."""

import json
import tempfile
from pathlib import Path

from reading.public import PUBLIC

from ziplan.check.run import Checked, check
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request

MACHINES = ("dgx-a100-80g", "rtx-3090-x8")
"""Eight GPUs of 80 GB, where nothing of an 8B model needs to be offloaded, and eight of 24 GB."""


def public_findings() -> dict[tuple[str, str], Checked]:
    """The judgement of each under the Trainer for an 8B model, by name and machine."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            (name, machine): _found(config, machine, Path(folder))
            for name, config in PUBLIC.items()
            for machine in MACHINES
        }


def _found(config: dict, machine: str, folder: Path) -> Checked:
    (folder / "ds_config.json").write_text(json.dumps(config, indent=2))
    arguments = {
        "output_dir": "out",
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "gradient_checkpointing": True,
        "bf16" if "bf16" in config else "fp16": True,
        "deepspeed": "ds_config.json",
    }
    path = folder / "arguments.json"
    path.write_text(json.dumps(arguments, indent=2))
    request = Request("llama-3.1-8b", machine, training={"sequence_length": 2048})
    return check(case_of(path, Asked(request)))
