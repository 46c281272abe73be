"""Every shipped shape is planned on every shipped machine, by every runtime; no pair raises."""

import math
from dataclasses import replace
from functools import cache

import pytest

from ziplan.errors import BadInput
from ziplan.estimate import estimate
from ziplan.hardware.profiles import list_profiles, load_cluster
from ziplan.plan import Plan
from ziplan.runtimes import RUNTIMES
from ziplan.workload.families import activation_bytes
from ziplan.workload.load import list_shapes, load_model
from ziplan.workload.training import Training, Workload

VERDICTS = {"fits", "tight", "does_not_fit", "unknown"}


@cache
def machines():
    return [load_cluster(name) for name in list_profiles("nodes")]


def workload(model, precision):
    training = Training(sequence_length=min(512, model.max_sequence_length or 512), precision=precision)
    return Workload(model, training, precision, activation_bytes(model, training.attention, precision))


def farthest(runtime, machine, work):
    """The plan at the end of every axis of the runtime's search: as far out as it goes."""
    chosen = Plan(dp_degree=float(machine.gpu_count))
    for axis in runtime.axes(machine, work):
        chosen = replace(chosen, **axis.choices[-1])
    return runtime.settle(machine, work, chosen)


@pytest.mark.parametrize("shape", list_shapes())
def test_a_shape_on_every_machine(shape):
    model = load_model(shape)
    works = {precision: workload(model, precision) for precision in ("bf16", "fp16")}
    for machine in machines():
        work = works["bf16" if "bf16" in machine.node.gpu.peak_flops_per_s else "fp16"]
        for runtime in RUNTIMES.values():
            if runtime.NAME == "megatron" and model.active_params != model.params:
                with pytest.raises(BadInput, match="experts"):
                    runtime.axes(machine, work)
                continue
            answer = estimate(machine, work, runtime, farthest(runtime, machine, work), record=False)
            assert answer.verdict in VERDICTS
            assert math.isnan(answer.step_time) or answer.step_time > 0, (machine.node.name, runtime.NAME)
            assert all(0 < need.low <= need.high for need in answer.memory.values() if need.high)
