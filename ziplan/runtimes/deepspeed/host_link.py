"""What crosses between a GPU and its host, in bytes of one rank."""

from __future__ import annotations

from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts


def crossing(
    f: Facts, label: str, params: float, bytes_per_param: float, share: float, dp_degree: float | None = None
) -> float:
    """A share of so many parameters, of which a rank has its part unless `dp_degree` says otherwise."""
    return f.derivation.apply(
        laws.host_link_bytes,
        label,
        params=params,
        bytes_per_param=bytes_per_param,
        dp_degree=f.plan.dp_degree if dp_degree is None else dp_degree,
        share=share,
    )


def of_the_optimizer(f: Facts, label: str, bytes_per_param: float, share: float = 1.0) -> float:
    """The same of what the optimizer updates off the GPU: gradients on their way there, weights back."""
    return crossing(f, label, f.trained, bytes_per_param, share * f.optimizer_share_off_gpu)
