"""Stage 3 between nodes: what it gathers and sums stands in the way of computation, and how often it does."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.hardware.cluster import Calibrated
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.deepspeed.released import Released
from ziplan.runtimes.deepspeed.traits import PAPER_ENGINE, traits_of
from ziplan.runtimes.deepspeed.turns import bucket_count
from ziplan.runtimes.runtime import COLLECTIVE
from ziplan.runtimes.terms import UPDATED_GATHER
from ziplan.simulate.step import simulate

MODEL = toy(24, 4096, 16384)
WORK = workload(MODEL, sequence_length=4096)
"""So large that neither the Python thread nor the network alone makes the step."""
SENT = ("gather", "gradient reduce")
DEEPSPEED = RUNTIMES["deepspeed"]


def told(machine, runtime=DEEPSPEED, **fields):
    fields = {"activation_checkpointing": Checkpointing.NONE, "prefetch_depth": 1.0, **fields}
    chosen = plan("hbm", "hbm", dp_degree=16.0, **fields)
    return estimate(machine, WORK, runtime, runtime.settle(machine, WORK, chosen))


def calibrated(machine, between=None, within=None, runtime="deepspeed"):
    known = Calibrated("runs", runtime, within, overlap_between_nodes=between)
    return replace(machine, calibrated=known)


TWO, ONE = cluster(nodes=2, gpus=8), cluster(gpus=16)


def hidden(answer):
    """Seconds of gathers, of sums and of products that do not lengthen the step."""
    return [answer.busy[term] - answer.terms.get(term, 0.0) for term in (*SENT, "compute")]


def hidden_below_stage_3(answer):
    return [answer.busy[term] - answer.terms.get(term, 0.0) for term in ("gradient reduce", "compute")]


def test_nothing_is_hidden_between_nodes():
    answer = told(TWO)
    assert hidden(answer) == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    assert min(answer.busy[term] for term in (*SENT, "compute")) > 0.01


def test_within_a_node_one_hides_the_other():
    assert max(hidden(told(ONE))) > 0.01


def test_below_stage_3_gradients_are_summed_beside_backward():
    assert max(hidden_below_stage_3(told(TWO, zero_stage=2.0))) > 0.01


@pytest.mark.parametrize("version", ["0.6.2", "2024-02", "0.19.8"])
def test_every_release_since_gathers_have_a_stream_of_their_own(version):
    assert traits_of(version).network_waits == 1
    assert hidden(told(TWO, Released(version))) == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)


def test_the_papers_engine_hides_it():
    assert traits_of(PAPER_ENGINE).network_waits == 0


def test_a_calibration_says_how_much_is_hidden():
    least, half, more = (told(calibrated(TWO, overlap)).step_time for overlap in (0.0, 0.5, 1.0))
    assert more < half < least == pytest.approx(told(TWO).step_time, rel=0.01)


def test_what_is_hidden_within_a_node_says_nothing_of_between_nodes():
    for told_of in (calibrated(TWO, within=1.0), calibrated(TWO, between=1.0, runtime="fsdp")):
        assert told(told_of).step_time == told(TWO).step_time
    assert told(calibrated(ONE, between=0.0)).step_time == told(ONE).step_time
    assert told(calibrated(ONE, within=0.0)).step_time > told(ONE).step_time


def test_a_played_step_takes_as_long_as_the_estimate():
    chosen = told(TWO).plan
    played = simulate(TWO, WORK, DEEPSPEED, chosen)
    assert played.makespan == pytest.approx(told(TWO).step_time, rel=0.05)


def test_buckets_are_reduced_before_the_tensor_that_does_not_fit():
    trained = [elements for elements, count, _ in MODEL.trainable_tensors for _ in range(int(count))]
    assert bucket_count(MODEL, float(sum(trained))) == 1
    assert bucket_count(MODEL, 1.0) == len(trained)
    assert 1 < bucket_count(MODEL, float(max(trained))) < len(trained)


def test_what_stays_gathered_is_brought_up_to_date_tensor_by_tensor():
    """Two norms of two tensors in each of 24 layers, and one norm of two outside."""
    answer = told(TWO)
    last = {id(d): d for segment in answer.segments for chain in segment.chains for d in chain}
    passes = [d.amount for d in last.values() if (d.term, d.resource) == (UPDATED_GATHER, COLLECTIVE)]
    assert sum(passes) == 24 * 4 + 2
    assert answer.terms[UPDATED_GATHER] > 0


def test_keys_that_a_run_s_config_had_win_over_what_follows_from_the_plan():
    """Smaller buckets are more sums; what may not live from one use to the next is gathered again."""
    plain = sums(told(TWO, Released("0.6.2")))
    zero = {"reduce_bucket_size": 1e7, "stage3_max_live_parameters": 1e6, "stage3_max_reuse_distance": 0.0}
    said = sums(told(TWO, Released("0.6.2", None, zero)))
    assert said["gradient reduce"] > plain["gradient reduce"]
    assert said["gather"] > plain["gather"]


def sums(answer):
    """Ways around the ring of a step, by term."""
    found = {}
    for segment in answer.segments:
        for demand in {id(d): d for chain in segment.chains for d in chain}.values():
            if demand.resource == COLLECTIVE:
                found[demand.term] = found.get(demand.term, 0.0) + segment.repeats * demand.amount
    return found


def prefetched(machine, work):
    axis = next(axis for axis in DEEPSPEED.axes(machine, work) if axis.name == "prefetch")
    return [option["prefetch_depth"] for option in axis.choices]


def test_a_layer_is_read_ahead_or_nothing_whatever_the_machine():
    """What is asked must not hang on how much memory there is: more of it would leave fewer plans."""
    for machine in (ONE, TWO, cluster(nodes=2, gpus=8, hbm="4 GB")):
        assert prefetched(machine, WORK) == [1.0, 0.0]
