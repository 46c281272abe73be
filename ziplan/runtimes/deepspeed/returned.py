"""Updated parameters on their way back to a GPU that keeps them, and new memory of an update on the host."""

from __future__ import annotations

from ziplan.laws.host import temporary_bytes
from ziplan.laws.law import where
from ziplan.runtimes import terms
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.host_link import of_the_optimizer
from ziplan.runtimes.runtime import STAGED, Demand
from ziplan.runtimes.shared.facts import UNFUSED_TEMPORARIES
from ziplan.runtimes.shared.fresh import UNMAPPED_FROM, fresh_memory


def memory_of_casts(f: Facts) -> tuple[Demand, ...]:
    """What the cast of updated parameters takes in stage 3: each sub-group's is a tensor of its own.

    `copy_` to a GPU that waits casts on the host first (PyTorch aten/src/ATen/native/cuda/Copy.cu:
    copy_kernel_cuda), as in `stage3.py:_reassign_or_swap_out_partitioned_parameters`; below stage 3 a buffer
    is kept.
    """
    label = "memory for updated parameters that are cast"
    return fresh_memory(f, terms.UPDATED_PAGES, label, f.stage3 * _returned(f, 1.0))


def memory_of_operators(f: Facts) -> tuple[Demand, ...]:
    """What an update on the host takes that is not one kernel: new tensors as large as a sub-group."""
    if not f.of_operators:
        return ()
    large = where(f.master * f.sub_group >= UNMAPPED_FROM, 1.0, 0.0)
    made = f.derivation.apply(
        temporary_bytes,
        "tensors that the update makes on the host",
        params=f.trained,
        bytes_per_param=f.master,
        temporary_count=UNFUSED_TEMPORARIES,
        dp_degree=f.plan.dp_degree,
        share=f.optimizer_share_off_gpu * large,
    )
    return fresh_memory(f, terms.TEMPORARIES, "memory of tensors that the update makes", made)


def copies_back(f: Facts, share: float) -> tuple[Demand, ...]:
    """A share of what goes back to the GPU of parameters that are updated off it: in stage 3 not pinned."""
    if not f.host:
        return ()
    returned, name = _returned(f, share), f"{f.host}.read"
    return (
        Demand(terms.UPDATED_COPY, name, (1 - f.stage3) * returned),
        Demand(terms.UPDATED_COPY, name + STAGED, f.stage3 * returned),
    )


def _returned(f: Facts, share: float) -> float:
    """Bytes of it."""
    label = "updated parameters copied to the GPU"
    return of_the_optimizer(f, label, f.element, share * f.params_on(f.gpu))
