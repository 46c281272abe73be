"""`ziplan init`: files to start from."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ziplan.cli import options
from ziplan.cli.output import save_all, write
from ziplan.errors import BadInput

app = typer.Typer(add_completion=False, rich_markup_mode=None)

MODEL = """\
# yaml-language-server: $schema=model.schema.json
# What is trained. `ziplan models list` names the shipped shapes.
model: llama-3.1-8b             # or the path of a Hugging Face config.json or its folder
training:
  sequence_length: 4096         # tokens
  # longest_sequence: 8192      # tokens of the longest sample, to which a micro-batch is padded; memory only
  # packing: true               # samples fill a sequence, each attending to itself
  # mean_sample_length: 600     # tokens of a packed sample, on average
  # global_batch_size: 64       # sequences per optimizer step over all ranks; left out: the solver's choice
  precision: bf16               # fp32, fp16 or bf16
  # master_precision: bf16      # of master weights, moments and the optimizer's gradients; else fp32
  optimizer: {kind: adamw, learning_rate: 1e-5, weight_decay: 0.1}  # or lion, adamw_8bit, adafactor, sgd
  activation_checkpointing: auto  # none, selective, full, or auto: the solver decides
  attention: flash              # flash or eager
  # kernels: eager              # or fused, compiled: norms, positions and functions in kernels of their own
  # trainable: {lora_rank: 16, targets: [q_proj, v_proj]}  # adapters; `targets: [all-linear]` is every linear
  # trainable: {frozen: [embed_tokens]}  # parts of the model that are left as they are
  # loading: {zero_init: true, dtype: bf16, copies: rank_0, largest_file: 5 GB}  # how weights come in
  # data_workers: 4             # DataLoader's processes of each rank
  # optimizer_threads: torchrun  # or a number, accelerate, deepspeed; else cores divided among the ranks
  # saving: gathered            # one rank saves the whole model; else each its shard
# companions:                   # other models of the same job: of RLHF, of distillation
#   - {role: reference, model: llama-3.1-8b}  # or teacher, critic, reward
#   - {role: critic, model: llama-3.2-1b, trainable: all}
#   - {role: reward, model: llama-3.2-1b, offload: cpu}  # where its parameters live if not with the plan's
"""

CLUSTER = """\
# yaml-language-server: $schema=cluster.schema.json
# What it is trained on. `ziplan profiles list` names the shipped machines.
machine: dgx-a100-80g           # or the path of a machine file
nodes: 1
# with:                         # changes to the machine, each with its unit
#   tiers.dram.capacity: 2 TiB
#   memory_limit: 400 GiB       # what a container or a batch system leaves of host memory
#   memlock_limit: 64 GB        # `ulimit -l`, of one process
# price: {per_node_hour: 32.77 USD, source: "your contract", date: 2026-01-01}
"""


def starting_files() -> dict[str, str]:
    """The files that `init` writes: two to edit, and the schemas that editors check them with."""
    from ziplan.cli.schema import schema_text

    return {
        "model.yaml": MODEL,
        "cluster.yaml": CLUSTER,
        "model.schema.json": schema_text("model.yaml"),
        "cluster.schema.json": schema_text("cluster.yaml"),
    }


@app.command()
def init(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", parser=options.a_path, help="Where to write. Default: here.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a commented model.yaml and cluster.yaml to start from; nothing is overwritten."""
    folder = folder or Path()
    files = starting_files()
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise BadInput.of(
            f"{', '.join(taken)} already there, nothing written",
            file=str(folder),
            help="name another folder: `ziplan init DIR`",
        )
    save_all(folder, files)
    names = " ".join(quote(str(folder / name)) for name in ("model.yaml", "cluster.yaml"))
    write(f"wrote {', '.join(files)} to {folder}\nnext: ziplan fit {names}\n")
