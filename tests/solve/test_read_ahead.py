"""Reading a layer ahead or nothing: both are asked about, and the first is taken where they cost the same."""

from itertools import pairwise

import numpy as np
import pytest
from runtimes.toy import cluster, toy, workload

from ziplan.runtimes import RUNTIMES
from ziplan.solve.enumerate import FITS, _estimates, best_by_placement, scores, search_grid
from ziplan.solve.problem import Problem

LARGE = toy(48, hidden=8192, middle=32768, vocabulary=32000)


def between_nodes(hbm, nodes=2):
    machine = cluster(nodes=nodes, gpus=8, hbm=hbm, dram="400 GB", nvme=None)
    training = {"global_batch_size": 96 * nodes, "activation_checkpointing": "full"}
    return Problem(machine, workload(LARGE, sequence_length=2048, **training), RUNTIMES["deepspeed"])


@pytest.mark.parametrize("nodes", [2, 4])
def test_more_gpu_memory_never_makes_the_fastest_plan_between_nodes_slower(nodes):
    """A layer of 1.6 GB is 6.4 % of the least of them, 4.9 % of the most."""
    fastest = []
    for tenths in range(250, 335, 3):
        problem = between_nodes(f"{tenths / 10} GB", nodes)
        found = best_by_placement(problem, search_grid(problem))
        fastest.append(min((each.cost for each in found if each.rank == FITS), default=float("inf")))
    assert all(later <= earlier for earlier, later in pairwise(fastest))
    assert fastest[-1] < fastest[0]


@pytest.mark.parametrize("hbm", ["40 GB", "80 GB"])
def test_what_is_read_ahead_is_left_out_only_where_that_is_faster(hbm):
    """Between nodes it hides nothing, and reading ahead is what everybody does."""
    problem = between_nodes(hbm)
    grid = search_grid(problem)
    (number,) = (place for place, axis in enumerate(grid.axes) if axis.name == "prefetch")
    whole = _estimates(problem, grid, [range(count) for count in grid.shape])
    rank, cost = (np.broadcast_to(each, grid.shape) for each in scores(problem, whole))
    for each in best_by_placement(problem, grid):
        if each.place[number] and each.rank == FITS:
            ahead = (*each.place[:number], 0, *each.place[number + 1 :])
            assert rank[ahead] != FITS or cost[ahead] > 1.002 * each.paid
