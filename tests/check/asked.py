"""Configs as files, and the cases that `ziplan check` makes of them."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from ziplan.check.run import findings
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request

GONE = object()
"""In changes: the key is left out."""

LAYER = 218_112_000
"""Parameters of a layer of Llama 3.1 8B: 4096 x (2 x 4096 + 2 x 1024 + 3 x 14336), and two norms of 4096."""

BASE = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 8,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "data_types": {"grad_accum_dtype": "bf16"},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": 50_000_000,
        "sub_group_size": 100_000_000,
        "stage3_prefetch_bucket_size": LAYER,
        "stage3_max_live_parameters": 2 * LAYER,
        "stage3_max_reuse_distance": 2 * LAYER,
        "stage3_param_persistence_threshold": 100_000,
    },
}
"""Stage 3 with nothing offloaded."""

PARAM, OPTIMIZER, ZERO = (
    "zero_optimization.offload_param",
    "zero_optimization.offload_optimizer",
    "zero_optimization",
)
CPU = {PARAM: {"device": "cpu"}, OPTIMIZER: {"device": "cpu"}}
NVME = {
    PARAM: {
        "device": "nvme",
        "nvme_path": "/local_nvme",
        "buffer_count": 60,
        "buffer_size": 100_000_000,
        "max_in_cpu": 0,
    },
    OPTIMIZER: {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4},
    f"{ZERO}.stage3_prefetch_bucket_size": 0,
    "aio": {"block_size": 1_048_576, "queue_depth": 32, "intra_op_parallelism": 1},
}


def changed(config, changes):
    """The config with values put at dotted keys, or taken away."""
    made = copy.deepcopy(config)
    for path, value in changes.items():
        *sections, name = path.split(".")
        inside = made
        for section in sections:
            inside = inside.setdefault(section, {})
        if value is GONE:
            inside.pop(name, None)
        else:
            inside[name] = copy.deepcopy(value)
    return made


@dataclass
class Ask:
    """One question: a DeepSpeed config as changes to BASE, or a plan as text; the machine and the run."""

    changes: dict[str, Any] = field(default_factory=dict)
    model: str = "llama-3.1-8b"
    cluster: str = "dgx-a100-80g"
    settings: tuple[str, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)
    launch: str | None = None
    plan: str | None = None
    gates: dict[str, Any] | None = None
    baseline: "Ask | None" = None
    max_regress: float = 0.0
    trainer: str | None = None

    def case(self, folder):
        """The case of this question, its files written below `folder`."""
        from dataclasses import replace

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ("plan.yaml" if self.plan is not None else "ds_config.json")
        path.write_text(
            self.plan if self.plan is not None else json.dumps(changed(BASE, self.changes), indent=2)
        )
        if self.launch is not None:
            (folder / "launch.sh").write_text(self.launch)
        training = {"sequence_length": 2048, "activation_checkpointing": "full", **self.training}
        training = {key: value for key, value in training.items() if value is not GONE}
        request = Request(self.model, self.cluster, settings=self.settings, training=training)
        case = case_of(path, Asked(request, self.trainer))
        if self.gates is not None:
            from ziplan.check.policy import Gates

            case = replace(case, gates=Gates.model_validate(self.gates))
        if self.baseline is not None:
            before = self.baseline.case(folder / "before")
            case = replace(case, baseline=before, max_regress=self.max_regress)
        return case

    def found(self, folder, *rules):
        """What these rules find, or all."""
        case = self.case(folder)
        return findings(case, rules) if rules else findings(case)


def config_text(changes):
    """BASE with changes, as a file."""
    return json.dumps(changed(BASE, changes), indent=2)
