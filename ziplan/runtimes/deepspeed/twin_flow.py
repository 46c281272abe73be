"""Twin-flow: an optimizer on both sides of the host link, in whole sub-groups.

`stage3.py:_create_fp32_partitions` (DeepSpeed 0.19.8) leaves the first `int((1 - ratio) * count)` sub-groups
on the GPU and puts the others on the host. Sub-groups differ in size (the last one is what is left), so
a share of the optimizer's bytes is what the sub-groups of one side come to, and never `ratio` itself.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from ziplan.runtimes.deepspeed.shards import sub_groups
from ziplan.workload.model import Model

ROUNDING = 1e-9
"""What a share may lack of a whole number of sub-groups and still mean it."""

Shares = tuple[float, ...]


@lru_cache(maxsize=256)
def host_shares(model: Model, dp_degree: float, sub_group_params: float) -> Shares:
    """The share of a rank's optimizer on the host with so many sub-groups there: none first, all last."""
    groups = sub_groups(model, dp_degree, sub_group_params) or (1.0,)
    from_the_last = np.cumsum([0.0, *reversed(groups)])
    return tuple(float(share) for share in from_the_last / from_the_last[-1])


def share_on_host(model: Model, dp_degree: float, sub_group_params: float, ratio: float) -> float:
    """What `ratio` puts on the host, as a share of the optimizer's elements."""
    shares = host_shares(model, dp_degree, sub_group_params)
    count = len(shares) - 1
    return shares[count - int((1 - ratio) * count)]


def whole_groups(model: Model, dp_degree: float, sub_group_params: float, share: float) -> float:
    """The least share of whole sub-groups that is `share` or more; each argument a scalar or an array."""
    if all(np.ndim(field) == 0 for field in (dp_degree, sub_group_params, share)):
        shares = np.asarray(host_shares(model, float(dp_degree), float(sub_group_params)))
        return float(shares[_place(shares, share)])
    degrees, sizes, asked = np.broadcast_arrays(dp_degree, sub_group_params, share)
    whole = np.empty(asked.shape)
    # Of each by itself before they are spread: a grid has few degrees and sizes, and many shares.
    for degree, size in product(np.unique(dp_degree), np.unique(sub_group_params)):
        shares = np.asarray(host_shares(model, float(degree), float(size)))
        here = (degrees == degree) & (sizes == size)
        whole[here] = shares[_place(shares, asked[here])]
    return whole  # type: ignore[return-value]


def _place(shares: np.ndarray, share: float) -> np.ndarray:
    """How many sub-groups on the host hold `share`: one at least, and no more than there are."""
    return np.clip(np.searchsorted(shares, np.asarray(share) - ROUNDING), 1, len(shares) - 1)


def ratio_of(model: Model, dp_degree: float, sub_group_params: float, share: float) -> float:
    """The `ratio` that puts `share` of the optimizer's elements on the host, and sub-groups in whole."""
    shares = np.asarray(host_shares(model, dp_degree, sub_group_params))
    count, on_host = len(shares) - 1, int(_place(shares, share))
    # DeepSpeed truncates (1 - ratio) x sub-groups: half a sub-group more than is meant stays clear of both.
    return 1.0 if on_host == count else round((on_host - 0.5) / count, 6)
