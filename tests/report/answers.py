"""Answers built by hand: every object of an answer, with numbers that are easy to recognise."""

from dataclasses import replace

from ziplan.estimate import Assumption, Estimate, Limits, TierMemory, TierTest
from ziplan.hardware.cluster import Cluster, Provenance
from ziplan.hardware.node import Node
from ziplan.laws.counts import layer_bytes
from ziplan.laws.law import Derivation
from ziplan.laws.partition import striped_fetch_time
from ziplan.plan import Placement, Plan
from ziplan.runtimes.runtime import PHASES, Ledger
from ziplan.solve.problem import Answer, Baseline, Binding, Change, Problem
from ziplan.workload.load import load_workload

GB = 1e9


class HandMade:
    """A runtime that emits one file and nothing else."""

    NAME = "handmade"
    VERSION = "1.2"

    def emit(self, cluster, workload, plan):
        return {"handmade.json": '{"stage": 3}\n'}


def node():
    return Node.model_validate(
        {
            "name": "Test Box",
            "gpu": {
                "name": "Test GPU",
                "memory": {"capacity": "80 GB", "bandwidth": "2 TB/s"},
                "peak_flops_per_s": {"bf16": "312 TFLOP/s", "fp16": "312 TFLOP/s"},
            },
            "gpus_per_node": 8,
            "tiers": {
                "hbm": {"medium": "hbm", "scope": "gpu", "capacity": "80 GB", "read_bandwidth": "2 TB/s"},
                "dram": {"medium": "dram", "scope": "node", "capacity": "1 TB"},
            },
        }
    )


def cluster():
    return Cluster(
        node(),
        nodes=2,
        provenance={
            "gpu.memory.capacity": Provenance("datasheet", "https://example.org/gpu"),
            "tiers.dram.capacity": Provenance("given", "cluster.yaml:4"),
        },
    )


def plan():
    return Plan(
        dp_degree=16.0,
        placement=Placement(
            params={"hbm": 1.0},
            grads={"hbm": 1.0, "dram": 0.0},
            optimizer={"dram": 0.75, "hbm": 0.25},
            checkpoints={"hbm": 1.0},
        ),
        micro_batch_size=2.0,
        accumulation_steps=4.0,
    )


class HandEstimate(Estimate):
    """An estimate whose verdict is unknown where an input that decides is missing."""

    @property
    def verdict(self):
        return "unknown" if self.unknown else super().verdict


def memory(available, low, high):
    phases = dict.fromkeys(PHASES, (low / 2, high / 2)) | {"backward": (low, high)}
    return TierMemory(capacity=available * 1.1, reserve=available * 0.1, available=available, phases=phases)


def estimate(hbm=(50 * GB, 60 * GB), **changes):
    derivation = Derivation()
    ledger = Ledger(derivation)
    size = derivation.apply(layer_bytes, layer_params=1e8, param_bytes_per_param=2.0)
    ledger.add("live parameters", "hbm", ("forward", "backward"), size, knob="stage3_max_live_parameters")
    ledger.add("activations", "hbm", ("backward",), hbm[1] - size, low=hbm[0] - size, knob="micro_batch_size")
    derivation.apply(striped_fetch_time, "dram", layer_bytes=size, dp_degree=16.0, link_bandwidth=25 * GB)
    ledger.add("optimizer state", "dram", PHASES, 300 * GB, pinned=True, knob="offload_optimizer.pin_memory")
    made = HandEstimate(
        cluster=cluster(),
        workload=load_workload("llama-3.1-8b", {"sequence_length": 4096}),
        runtime="handmade",
        plan=plan(),
        step_time=20.0,
        tokens_per_step=16 * 2 * 4 * 4096.0,
        terms={"compute": 15.0, "gather": 4.0, "optimizer": 1.0, "dram read": 0.0},
        busy={"compute": 15.0, "gather": 6.0, "optimizer": 1.0},
        model_flops=2.5e16,
        hardware_flops=3.2e16,
        traffic={"dram.read": (10 * GB, 0.0), "gather": (40 * GB, 0.0)},
        flash_writes=0.0,
        memory={
            "hbm": memory(72 * GB, *hbm),
            "dram": memory(900 * GB, 300 * GB, 300 * GB),
        },
        ledger=ledger,
        segments=(),
        derivation=derivation,
        tiers={
            "hbm": TierTest(2e12, 62.5, 16384.0, 31.25, 262.0, 1e-4, 1e-4, 1.0, 1.0),
            "dram": TierTest(25e9, 12480.0, 16384.0, 6240.0, 21.0, 8e-3, 5e-4, 1.0, 1.0),
        },
        limits=Limits(6e10, 40960.0, 1.4e10, 3.2e7, 16.0, 31557600.0, 20.0, 12000.0),
        assumptions=(Assumption("cuda_context", 1 * GB, "B", "assumed", "a guess", 0.5 * GB, 2 * GB),),
        interval=(0.9, 1.25),
        interval_source="13 runs of handmade",
        drive_lifetime=None,
        unknown=(),
    )
    return replace(made, **changes)


def on_fewer(best, nodes=1, ranks=8.0):
    """A plan of twice the speed on fewer GPUs, for the same global batch."""
    steps = best.plan.accumulation_steps * best.plan.dp_degree / ranks
    return replace(
        best,
        cluster=replace(best.cluster, nodes=nodes),
        plan=replace(best.plan, dp_degree=ranks, accumulation_steps=steps),
        step_time=best.step_time / 2,
    )


def answer(verdict="fits", **changes):
    hbm = {
        "fits": (50 * GB, 60 * GB),
        "tight": (65 * GB, 75 * GB),
        "does_not_fit": (100 * GB, 120 * GB),
        "unknown": (50 * GB, 60 * GB),
    }[verdict]
    unknown = ("tiers.dram.read_bandwidth",) if verdict == "unknown" else ()
    best = estimate(hbm, unknown=unknown)
    made = Answer(
        problem=Problem(best.cluster, best.workload, HandMade()),
        best=best,
        alternatives=(replace(best, step_time=25.0),),
        baseline=Baseline(gpus=4.0, usable_bytes_per_gpu=72 * GB, step_time=None, fits_here=False),
        binding=Binding("time", "gpu", "compute"),
        changes=(Change("training.micro_batch_size", "2", "4", "step time per token falls by 12 %"),),
        do_not_offload=False,
        plans_evaluated=1234,
        space="placement x micro-batch",
        gpus_there=16,
        notes=("a note of the solver",),
    )
    return replace(made, **changes)
