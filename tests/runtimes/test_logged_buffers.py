"""Sizes that a run of DeepSpeed printed about itself, on GPUs.

https://github.com/DataStates/artifacts, MLP-Offload/logs: parameters of the model, and gigabytes of
`SwapBufferManager`, the pinned buffers of one rank of four that optimizer state is swapped through.
"""

import pytest

from ziplan.study.records import Record, load_runs, shipped_files
from ziplan.study.validate import estimated

PRINTED = {
    "mlp-offload-base-40b-4h100": (48163722240, 36.2509765625),
    "mlp-offload-base-52b-4h100": (44278226944, 35.4110107421875),
    "mlp-offload-base-70b-4h100": (68605452288, 39.453887939453125),
    "mlp-offload-base-100b-4h100": (105885147136, 28.40679931640625),
}


@pytest.fixture(scope="module")
def runs():
    found = [each for each in load_runs(shipped_files()) if isinstance(each, Record)]
    return {each.entry.id: estimated(each) for each in found if each.entry.id in PRINTED}


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_and_swap_buffers_are_those_that_the_run_printed(runs, name):
    params, gigabytes = PRINTED[name]
    assert runs[name].workload.model.params == params
    (line,) = [one for one in runs[name].ledger.lines if one.name == "optimizer swap buffers"]
    # One norm of 5,120 more is in the largest sub-group of 40B, whose norms Megatron registers elsewhere.
    assert line.low == pytest.approx(4 * gigabytes * 2**30, rel=2e-5)


@pytest.mark.parametrize(
    ("name", "buffers", "before", "after"),
    [
        ("mlp-offload-base-40b-4h100", 64, 14.7, 276.32),
        ("mlp-offload-base-52b-4h100", 56, 14.73, 243.66),
        ("mlp-offload-base-70b-4h100", 50, 14.71, 219.65),
        ("mlp-offload-base-100b-4h100", 36, 14.74, 162.79),
    ],
)
def test_pytorch_rounded_the_pinned_buffers_up(runs, name, buffers, before, after):
    """GB of the node that were used before and after (`see_memory_usage`, in GiB); 5 are something else's."""
    (line,) = [one for one in runs[name].ledger.lines if one.name == "optimizer swap buffers"]
    assert line.high == 4 * buffers * 2**30, "a buffer of 0.57 to 0.79 GiB takes one"
    assert after - before == pytest.approx(line.high / 2**30 + 5, abs=1)
