"""How good predictions should be, by how much each kind of run misses that, and why as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ziplan.estimate.fidelity import NVME, ON_GPU, OPTIMIZER_ON_HOST, PARAMS_ON_HOST
from ziplan.report.validation import Peak, Score, Validation

MEDIAN, P90, BIAS = 0.10, 0.25, 0.03
"""Errors of step times: their median and 90th percentile, and how far the mean may be off."""

MEMORY = 0.10
"""Median error of memory: the middle of the predicted interval against the peak that was seen."""

RIGHT = 0.95
"""Share of the verdicts on memory that should be right, of those that do not abstain."""

WHY: dict[tuple[str, str], str] = {
    ("deepspeed", ON_GPU): (
        "an Open-Llama with the eager attention of the spring of 2023 and a GPT-2 XL under autocast, whose "
        "casts and fp32 softmax are not counted; stages that hand out parameters rank by rank over 256 "
        "GPUs and more (InternEvo); adapters in compiled kernels on a 4090, which took two thirds of their "
        "products; stage 3 on 32 to 128 machines at one or two sequences, which took 2 to 24 s longer than "
        "products and network one after the other, 175 billion parameters the longer the more machines: as "
        "if a hop to another rank took three times as long as in NCCL's model; V100s with modules that "
        "nothing fuses and a width of 2,048 (PyTorch's bars of the ZeRO-Offload paper took twice as long "
        "as their bytes and products); a run of BigScience at a batch of 4 that took longer than the "
        "larger ones beside it; adapters of Qwen, whose small modules the hooks of stage 3 pass faster "
        "than the large ones that their time is taken from; a Llama of Transformers on eight A800 that "
        "took a quarter to a half longer than its products and all that its modules move (whether it "
        "reduced gradients beside backward is not stated); models of 0.2 and 0.7 billion parameters on one "
        "GH200, whose host took 3 ms and more to launch the kernels of a layer, and what it read and stepped "
        "besides; seven billion parameters on four H100, 0.13 to 0.19 s longer than hooks, launches and "
        "passes, where a quarter of a billion on the same page takes as long as its hooks (what the larger "
        "one gathers, sums and passes through memory would take that long if nothing of it were hidden)"
    ),
    ("deepspeed", OPTIMIZER_ON_HOST): (
        "a trillion parameters and more on 64 and 128 machines, 10 to 60 s longer (two trillion 110) than "
        "products, network and optimizer one after the other; V100s at a width of 2,048 with modules that "
        "nothing fuses, a batch that fits in GPU memory and one optimizer step each, all read off one "
        "figure; a bar of one sequence that takes about as long as the optimizer alone; a Llama on eight "
        "A800 in a release whose host casts the last gradients, which took 15 s more than copies and update "
        "would: its developers saw 26 s of backward where a GPU that casts takes 0.3 (pull request 6962; "
        "neither its machine nor this one's launcher is stated)"
    ),
    ("deepspeed", PARAMS_ON_HOST): (
        "the same Llama with its parameters on the host too; "
        "four runs of one cluster in the spring of 2021 that took 16 to 70 s longer than the bytes that "
        "they moved explain, whatever the batch: copies that wait for each tensor are in that release, "
        "how long they wait is not known; an OPT of 13 billion parameters whose batch of 32 took 13 s "
        "longer than that of 24, at under half the rate that other runs of its page leave those sequences: "
        "the allocator held 77 of 80 GiB"
    ),
    ("deepspeed", NVME): (
        "an array of drives may be read while it is written, as one drive was not (DataStates' logs); of "
        "that of a DGX-2 nobody has stated it"
    ),
    ("fsdp", PARAMS_ON_HOST): (
        "five runs of a course with one rank on a machine, a quarter to three quarters longer than the "
        "passes of an AdamW of single operators and the norm that one thread takes of 16-bit gradients: "
        "what a core of Grace reads and sums is not stated; four runs of it whose four ranks had 72 "
        "threads each for the 72 cores of one superchip: each of the update's loops lost 1.2 to 2.4 ms, "
        "for threads spin while they wait (such loops took 10 to 80 ms where processes shared two cores of "
        "an EPYC 7003, and 0.3 with OMP_WAIT_POLICY=passive); a run of 13 billion parameters by one "
        "process, 13 s longer than by eight, of which one thread takes the norm too"
    ),
    ("megatron", ON_GPU): (
        "heads of 150 and 450, whose scores the tensor cores did not take with the CUDA of early 2022: the "
        "same page has 157 s with 128 heads of 108 and 118 s with 96 of 144, which leaves 10 TFLOP/s to "
        "those products of an A100; micro-batches of one and two sequences over eight slices (four of them "
        "took a sixth less there), kernels that waited for each other (CUDA_LAUNCH_BLOCKING=1, without which "
        "it hung); its machines were 1 to 5% slower before 25 February, as it says; the source of the V100 "
        "runs has one run at 125 and at 225 s, its fast runs multiply matrices at 80 TFLOP/s and more, where "
        "54 are taken, and several rings over its network carry more than the one whose rate is known"
    ),
    ("megatron", OPTIMIZER_ON_HOST): (
        "one run, read off a figure, of a width of 4,096 in two slices: products of half that width"
    ),
    ("megatron", PARAMS_ON_HOST): "one run of a cluster whose times scatter by up to 40%, as its source says",
    ("megatron", NVME): (
        "the paper's engine is taken to hide all gathers; at 5 to 10 sequences a GPU it may not (figure 6d)"
    ),
    ("fsdp", ON_GPU): (
        "micro-batches of a sequence or two take longer and those of 16,384 tokens and more less than waves "
        "explain: of 13 billion parameters on H100 a micro-step takes 70 to 90 ms more, as 20 B a parameter "
        "through the memory would beside those that FSDP is seen to pass"
    ),
}
"""What is known of the cause where a kind of run misses a target."""

UNKNOWN = "no cause has been found"

LEFT_OUT = (
    "Waves and a higher rate of V100s: measured products show waves of 80 tiles and 90 TFLOP/s "
    "(arXiv:2401.14489), timers in BigScience's logs leave 80 to 84 TFLOP/s to products of width 8,192, and "
    "a user of a DGX-2 saw 63 over whole steps (DeepSpeed issue 1776), where 54 are taken from a run of "
    "width 1,536 of 2019. With 58 in waves and the memory's measured 750 GB/s, Megatron's runs would be 6 to "
    "10 points closer, those of the ZeRO-Offload and ZeRO-Infinity papers 5 to 12 points farther off.",
    "The rate of FlashAttention-2 where no kernel is named: most of those runs are of llm-foundry, whose "
    "script asked for the first version, in Triton.",
    "A lower rate of scores whose heads are no multiple of 8 wide (0.65 of it on an A100 in 2023, "
    "arXiv:2401.14489; a tenth of it in early 2022, as BigScience's page has it): it depends on a release of "
    "CUDA that records do not have, and no shipped model has such heads.",
    "Python's time for the hooks on gradients of stages 1 and 2: one page has 3.4 s of backward where "
    "PyTorch's own data parallelism took 0.7, of a model of some 800 tensors (OpenTau issue 177), which "
    "would be 3.4 ms each; the runs here leave them 0.15 at the most.",
    "Smaller tiles, so that a few tokens more would not add a third to a step: an A100 and a V100 take 37 "
    "and 41% longer for 264 tokens than for 256, and no less for 64 than for 128 (arXiv:2401.14489).",
)
"""What was tried, and what it does to runs that it was not taken from."""


def targets_section(validation: Validation) -> str:
    """The section of the page, in Markdown."""
    rows = [f"| {' | '.join(row)} |" for row in (_TITLES, ["---"] * len(_TITLES), *_rows(validation.scores))]
    lines = (*_memory(validation), *(f"Tried and left out. {each}" for each in LEFT_OUT))
    return "\n".join((_HEAD, *rows, "", *(f"- {line}" for line in lines), ""))


_TITLES = ["Runtime", "Kind of run", "Runs", "Median", "90th percentile", "Bias", "Why"]

_HEAD = f"""\
## Targets

Half of the step times of a kind within {MEDIAN:.0%}, nine of ten within {P90:.0%}, the mean of the errors
within {BIAS:.0%}. A figure beyond its target is followed by how far beyond.
"""


def _rows(scores: Iterable[Score]) -> Iterator[list[str]]:
    for score in scores:
        figures = ((score.median_error, MEDIAN), (score.p90_error, P90), (score.bias, BIAS))
        cells = [_against(value, target) for value, target in figures]
        missed = any(abs(value) > target for value, target in figures)
        why = WHY.get((score.runtime, score.kind), UNKNOWN) if missed else ""
        yield [score.runtime, score.kind, str(score.count), *cells, why]


def _against(value: float, target: float) -> str:
    """A figure, and by how much it misses its target."""
    beyond = abs(value) - target
    return f"{value:.1%}" + (f" (by {beyond:.1%})" if beyond > 0 else "")


def _memory(validation: Validation) -> Iterator[str]:
    right, wrong, abstained = (len(validation.with_verdict(hit)) for hit in (True, False, None))
    if right + wrong:
        share = right / (right + wrong)
        yield (
            f"Fit or out of memory: {_least(share)} of {right + wrong} verdicts right, {RIGHT:.0%} wanted; "
            f"{abstained} more abstained, most of them since dropout, how the loss is computed, softmax "
            "in fp32 and what the allocator keeps are not stated."
        )
    peaks = [peak for run in validation.runs for peak in run.peaks]
    if peaks:
        error = float(np.median([abs(_middle(peak) / peak.measured - 1) for peak in peaks]))
        off = f"{_against(error, MEMORY)} off at the median of {len(peaks)} peaks"
        yield f"Memory: the middle of the interval is {off}."


def _least(share: float) -> str:
    return f"{share:.1%}" + (f" (by {RIGHT - share:.1%})" if share < RIGHT else "")


def _middle(peak: Peak) -> float:
    return (peak.low + peak.high) / 2
