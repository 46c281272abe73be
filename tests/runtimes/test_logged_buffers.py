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
    assert line.low == line.high == pytest.approx(4 * gigabytes * 2**30, rel=2e-5)
