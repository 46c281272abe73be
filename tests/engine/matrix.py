"""The settings that DeepSpeed can be run with together, and those of them that are run."""

from functools import lru_cache
from typing import NamedTuple

from engine.covering import all_rows, covering
from engine.harness import World

MODELS = {
    # Fused attention matrices, biases, a tied embedding that swaps at any number of ranks.
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 3, "n_head": 12, "vocab_size": 16384}
    | {"n_positions": 64},
    # Matrices that are gathered and never swap, biases, tied embeddings.
    "qwen2": {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 2432, "num_hidden_layers": 3}
    | {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 1000, "tie_word_embeddings": True}
    | {"max_position_embeddings": 64},
    "mistral": {"model_type": "mistral", "hidden_size": 1024, "intermediate_size": 2816}
    | {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1024}
    | {"tie_word_embeddings": False, "max_position_embeddings": 64},
}
WORLDS = {
    "1 rank": World(1),
    "2 ranks": World(2),
    # No power of two, so shards are padded, and more than a node has.
    "rank 0 of 3": World(3, simulated=True),
    "rank 0 of 16": World(16, simulated=True),
}


class Setting(NamedTuple):
    """One run; tiers are `hbm`, `dram` and `nvme`, sub-groups in parameters of a rank."""

    stage: int
    params: str
    optimizer: str
    checkpointing: str
    accumulation: int
    sub_group_params: float
    optimizer_buffers: int
    prefetch_depth: int
    model: str
    world: str

    @property
    def name(self) -> str:
        """What tells it from the others."""
        shares = "one sub-group" if self.sub_group_params == WHOLE else "several sub-groups"
        return (
            f"stage {self.stage}, {self.params} and {self.optimizer}, {self.checkpointing}, "
            f"{self.accumulation} micro-steps, {shares}, {self.optimizer_buffers} buffers, "
            f"prefetch {self.prefetch_depth}, {self.model}, {self.world}"
        )


WHOLE, TILE = 1e9, 2e6
FACTORS = {
    "stage": (0, 1, 2, 3),
    "params": ("hbm", "dram", "nvme"),
    "optimizer": ("hbm", "dram", "nvme"),
    "checkpointing": ("none", "reentrant", "non_reentrant"),
    "accumulation": (1, 2),
    "sub_group_params": (WHOLE, TILE),
    "optimizer_buffers": (4, 12),
    "prefetch_depth": (0, 1),
    "model": tuple(MODELS),
    "world": tuple(WORLDS),
}


def settled(*values) -> Setting | None:
    """The setting with what has no effect at its first value; None where DeepSpeed has no such place."""
    found = Setting(*values)
    below = found.stage < 3
    if below and (found.params != "hbm" or found.optimizer == "nvme"):
        return None
    if found.stage == 0 and found.optimizer != "hbm":
        return None
    if below:
        found = found._replace(sub_group_params=WHOLE)
    if below or found.params == "nvme":
        found = found._replace(prefetch_depth=0)
    return found if found.optimizer == "nvme" else found._replace(optimizer_buffers=4)


@lru_cache(maxsize=1)
def settings() -> tuple[list[Setting], list[Setting]]:
    """Those that every run of the tests does, where any two values meet; and more, where any three do.

    The more have every place of parameters and optimizer under every stage with each kind of
    recomputation, with and without accumulation.
    """
    rows = all_rows(FACTORS, settled)
    few = covering(rows, 2)
    more = covering(rows, 3, few)
    met = {row[:5] for row in (*few, *more)}
    for row in rows:
        if row[:5] not in met:
            met.add(row[:5])
            more.append(row)
    return few, more
