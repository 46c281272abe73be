"""Updated parameters on their way back to a GPU that keeps them."""

from __future__ import annotations

from ziplan.runtimes import terms
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.host_link import of_the_optimizer
from ziplan.runtimes.runtime import STAGED, Demand
from ziplan.runtimes.shared.fresh import fresh_memory


def memory_of_casts(f: Facts) -> tuple[Demand, ...]:
    """What the cast of updated parameters takes in stage 3: each sub-group's is a tensor of its own.

    `copy_` to a GPU that waits casts on the host first (PyTorch aten/src/ATen/native/cuda/Copy.cu:
    copy_kernel_cuda), as in `stage3.py:_reassign_or_swap_out_partitioned_parameters`; below stage 3 a buffer
    is kept.
    """
    label = "memory for updated parameters that are cast"
    return fresh_memory(f, terms.UPDATED_PAGES, label, f.stage3 * _returned(f, 1.0))


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
