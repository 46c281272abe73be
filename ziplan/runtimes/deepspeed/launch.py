"""Launch lines: the same run started by `deepspeed`, `torchrun`, `accelerate launch` or Slurm.

They name neither hosts nor folders: run them where train.py and the emitted files are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.huggingface import by_liger
from ziplan.runtimes.deepspeed.knobs import REENTRANT
from ziplan.runtimes.shared.said import ALLOCATOR, allocator_notes, allocator_setting, lines_of_train_py
from ziplan.runtimes.shared.threads import divided_by_the_shell, threads_to_set
from ziplan.runtimes.shared.train_py import recomputed_attention, trainable_lines
from ziplan.workload.kernels import OF_THEIR_OWN

PORT = 29500
"""torch.distributed's own default port."""

DTYPES = {"fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}

COMPILED_BY = {
    "none": "engine.compile() before the first step",
    "huggingface": "torch_compile of trainer_args.json",
    "accelerate": "accelerate, asked below",
}
"""What has layers compiled, by trainer; DeepSpeed's own config has no key for it."""

REGIONS = {"ACCELERATE_DYNAMO_BACKEND": "inductor", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "true"}
"""What has accelerate compile each layer."""

ARGUMENTS = {
    "none": " --deepspeed --deepspeed_config ds_config.json",
    "huggingface": " trainer_args.json",
    "accelerate": "",
}
"""What train.py is given, by trainer."""


def launch_files(facts: Facts, trainer: str) -> dict[str, str]:
    """Launch files by name: DeepSpeed's own, and for a trainer those of the other launchers."""
    files = {"launch.sh": _deepspeed(facts, trainer)}
    if nodes(facts) > 1:
        # The launcher hands these to the other nodes; of its own environment it hands on very little.
        files[".deepspeed_env"] = "".join(f"{k}={v}\n" for k, v in _environment(facts, trainer).items())
    if trainer == "none":
        return files
    starts = "launch_accelerate.sh" if trainer == "accelerate" else "launch_torchrun.sh"
    files["launch_torchrun.sh"] = _torchrun(facts, trainer)
    if trainer == "accelerate":
        files["launch_accelerate.sh"] = _accelerate(facts)
    return {**files, "launch.sbatch": _slurm(facts, starts)}


def nodes(facts: Facts) -> int:
    """Nodes that the ranks of the plan fill."""
    return math.ceil(facts.plan.dp_degree / facts.ranks)


def _deepspeed(facts: Facts, trainer: str) -> str:
    ranks, options = int(facts.ranks), []
    if nodes(facts) > 1:
        options += ["--hostfile hostfile", f"--num_nodes {nodes(facts)}"]
    options.append(f"--num_gpus {ranks}")
    if facts.optimizer_off_gpu and not isinstance(facts.workload.training.optimizer_threads, int):
        options.append("--bind_cores_to_rank")
    if trainer != "none":
        options.append("--no_local_rank")
    notes = [f"hostfile: a line `NAME slots={ranks}` for each of {nodes(facts)} nodes."]
    return _script(
        facts,
        trainer,
        f"deepspeed {' '.join(options)} train.py{ARGUMENTS[trainer]}",
        notes=notes if nodes(facts) > 1 else (),
    )


def _torchrun(facts: Facts, trainer: str) -> str:
    where_to, checks = "--standalone", []
    if nodes(facts) > 1:
        where_to = f'--nnodes {nodes(facts)} --rdzv_backend c10d --rdzv_endpoint "$HEAD_NODE:{PORT}"'
        checks = [_needs_head_node()]
    line = f"torchrun {where_to} --nproc_per_node {int(facts.ranks)} train.py{ARGUMENTS[trainer]}"
    notes = ["Run this on every node."] if checks else ()
    return _script(facts, trainer, *checks, line, notes=notes)


def _accelerate(facts: Facts) -> str:
    options, checks = "--config_file accelerate_config.yaml", []
    if nodes(facts) > 1:
        options += f' --machine_rank "$NODE_RANK" --main_process_ip "$HEAD_NODE" --main_process_port {PORT}'
        checks = [
            _needs_head_node(),
            'NODE_RANK="${NODE_RANK:-${SLURM_NODEID:?set NODE_RANK: 0 on the first node, then 1, 2, ...}}"',
        ]
    notes = ["Run this on every node."] if checks else ()
    # accelerate's launcher makes its variables from its config. Under DeepSpeed it makes none for its
    # compiler, and hands on what it is given.
    exports = {**_environment(facts, "none"), **_compiler(facts)}
    line = f"accelerate launch {options} train.py"
    return _script(facts, "accelerate", *checks, line, notes=notes, environment=exports)


def _needs_head_node() -> str:
    return ': "${HEAD_NODE:?set it to the name of the first node}"'


def _slurm(facts: Facts, starts: str) -> str:
    cores = facts.cluster.node.cpu.cores
    lines = [
        "#!/usr/bin/env bash",
        "#SBATCH --job-name=ziplan",
        f"#SBATCH --nodes={nodes(facts)}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={int(facts.ranks)}",
        *([f"#SBATCH --cpus-per-task={cores}"] if cores else []),
        "#SBATCH --mem=0",
        "#SBATCH --exclusive",
        "# Submit from the folder of train.py; account, partition and time limit are your site's.",
        "set -eu",
        'HEAD_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export HEAD_NODE",
        f"srun --kill-on-bad-exit=1 bash {starts}",
    ]
    return _text(lines)


def _script(
    facts: Facts,
    trainer: str,
    *commands: str,
    notes: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    exports = dict(_environment(facts, trainer) if environment is None else environment)
    if facts.optimizer_off_gpu:
        exports.setdefault("OMP_NUM_THREADS", divided_by_the_shell(int(facts.ranks)))
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {note}" for note in _comments(facts, trainer, notes)),
        "set -eu",
        *(f"# {note}" for note in allocator_notes(facts.workload.training)),
        *(f"export {name}={value}" for name, value in exports.items()),
        *_locked_memory(facts),
        *commands,
    ]
    return _text(lines)


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _environment(facts: Facts, trainer: str) -> dict[str, str]:
    variables = {ALLOCATOR: allocator_setting(facts.workload.training)}
    threads = threads_to_set(facts)
    if facts.optimizer_off_gpu and threads:
        variables["OMP_NUM_THREADS"] = str(threads)
    if trainer == "accelerate":
        variables["ACCELERATE_USE_DEEPSPEED"] = "true"
        variables["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = "ds_config.json"
        variables["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = "true" if facts.stage3 else "false"
        variables |= _compiler(facts)
    return variables


def _compiler(facts: Facts) -> dict[str, str]:
    return REGIONS if facts.workload.training.kernels == "compiled" else {}


def _locked_memory(facts: Facts) -> list[str]:
    """DeepSpeed locks its swap buffers with mlock, which counts against the limit of the shell."""
    if not (facts.params_on(facts.nvme) or facts.optimizer_on(facts.nvme)):
        return []
    return [
        "# Swap buffers are locked in memory, on every node.",
        "ulimit -l unlimited 2>/dev/null || "
        'echo "locked memory is limited to $(ulimit -l) KiB: raise memlock in limits.conf" >&2',
    ]


def _comments(facts: Facts, trainer: str, notes: Iterable[str]) -> list[str]:
    """What a script says above its commands."""
    fused, loss = by_liger(facts.workload) if trainer == "huggingface" else ("", "")
    predicted = lines_of_train_py(facts.workload, facts.plan, COMPILED_BY[trainer], fused, loss)
    return [*notes, *_of_train_py(facts, trainer), *predicted, *_of_the_others(facts)]


def _of_train_py(facts: Facts, trainer: str) -> list[str]:
    """What the user's train.py has to do for the plan to hold."""
    trained = trainable_lines(facts.workload.training)
    if trained:
        trained = ["In train.py, once the model is made and before the engine is:", *trained]
    checkpointing = [*trained, *_optimizer_note(facts, trainer), *_checkpointing_note(facts)]
    if trainer == "huggingface":
        return [
            "In train.py, before the model is made, so that stage 3 partitions it as it is loaded:",
            "(args,) = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])",
            f"and then the model with dtype={DTYPES[facts.workload.precision]}.",
            *trained,
        ]
    if trainer == "accelerate":
        return [
            "In train.py: Accelerator() before the model is made"
            + (", and accelerate.utils.DummyOptim as the" if facts.optimizer.config_type else "."),
            *(["optimizer: ds_config.json says which one it is."] if facts.optimizer.config_type else []),
            *checkpointing,
        ]
    return checkpointing


def _optimizer_note(facts: Facts, trainer: str) -> list[str]:
    """The optimizer that no config can name."""
    settings = facts.workload.training.optimizer
    if facts.optimizer.config_type or trainer == "huggingface":
        return []
    values = (
        f"lr={settings.learning_rate}, betas=({settings.beta1}, {settings.beta2}), "
        f"eps={settings.epsilon}, weight_decay={settings.weight_decay}"
    )
    given = (
        "to accelerator.prepare" if trainer == "accelerate" else "to deepspeed.initialize as its optimizer"
    )
    return [
        f"In train.py, given {given}:",
        f"bitsandbytes.optim.AdamW8bit((p for p in model.parameters() if p.requires_grad), {values})",
    ]


def _of_the_others(facts: Facts) -> list[str]:
    """What it has to do for the other models of the job."""
    if not facts.workload.companions:
        return []
    from ziplan.runtimes.deepspeed.beside import companion_lines  # few jobs have several models

    return list(companion_lines(facts.cluster, facts.workload, facts.plan))


def _checkpointing_note(facts: Facts) -> list[str]:
    mode = Checkpointing(int(facts.plan.activation_checkpointing))
    if mode == Checkpointing.NONE:
        return []
    if mode == Checkpointing.SELECTIVE:
        alone = "In train.py, before the engine is made: attention alone under torch.utils.checkpoint"
        workload = facts.workload
        if workload.training.attention == "eager" or workload.model.family in OF_THEIR_OWN:
            return [f"{alone}."]
        return [f"{alone}, as with", *recomputed_attention()]
    if facts.checkpoints_on(facts.host):
        return [
            "In train.py, before the engine is made:",
            "deepspeed.init_distributed()",
            'deepspeed.checkpointing.configure(None, deepspeed_config="ds_config.json")',
            "and in the model's code every layer as deepspeed.checkpointing.checkpoint(layer, hidden),",
            "which keeps its input on the host; PyTorch's checkpointing stays off.",
        ]
    reentrant = f'{{"use_reentrant": {REENTRANT}}}'
    return [
        "In train.py, before the engine is made: "
        f"model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={reentrant})"
    ]
