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
        "stage 3 on 16 to 128 machines, where a step took 8 to 70 s more than its products whatever the "
        "micro-batch, as if its gathers and sums were hidden by nothing and ran at a quarter to two thirds "
        "of the network's rate, less on more machines; V100s with modules that nothing fuses and a width of "
        "2,048 (PyTorch's bars of the ZeRO-Offload paper took twice as long as their bytes and products); a "
        "run of BigScience at a batch of 4 that took longer than the larger ones beside it; adapters of "
        "Qwen, whose small modules the hooks of stage 3 pass faster than the large ones that their "
        "time is taken from, and which were fewer: queries, keys and values are one there"
    ),
    ("deepspeed", OPTIMIZER_ON_HOST): (
        "a trillion parameters on 64 and 128 machines, whose gathers and sums nothing hid; two ranks on a "
        "machine of two processors, whose optimizer and copies took twice as long as its DRAM and links "
        "would; DeepCompile's runs are flat over the sequence, so their optimizer took some 14 s, twice as "
        "long as the DRAM of the machine taken would: processors, threads and binding are not stated; "
        "V100s at a width of 2,048 with modules that nothing fuses, a batch that fits in GPU memory and "
        "one optimizer step each, all read off one figure; a bar of one sequence that takes about as long as "
        "the optimizer alone"
    ),
    ("deepspeed", PARAMS_ON_HOST): (
        "four runs of one cluster in the spring of 2021 that took 20 to 70 s longer than the bytes that "
        "they moved explain, whatever the batch: copies that wait for each tensor are in that release, "
        "how long they wait is not known"
    ),
    ("deepspeed", NVME): ("how fast drives are that are read and written at once is not known"),
    ("fsdp", PARAMS_ON_HOST): (
        "nine runs of a course with an AdamW that is not fused, whose every operation goes over the host's "
        "memory, and with gradients clipped there: some 2e9 parameters a second and Grace in 16 bits, where "
        "a fused one is taken; a run of 13 billion parameters by one process, 13 s longer than by eight"
    ),
    ("megatron", ON_GPU): (
        "widths that are no multiple of 64 on each GPU (14,400 over 8) take longer than waves and tiles that "
        "are not full explain, and even those beside them, in large micro-batches that fill their waves, are "
        "predicted 16 to 20% short; the source of the V100 runs has one run at 125 and at 225 s, and several "
        "rings over its network carry more than the one whose rate is known"
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
        "explain: each micro-step costs something with its parameters that is not counted"
    ),
}
"""What is known of the cause where a kind of run misses a target."""

UNKNOWN = "no cause has been found"

LEFT_OUT = (
    "Waves of V100s: its measured products show them (arXiv:2401.14489), but its rate is from a run of width "
    "1,536, whose own waves would make full ones 6% faster, and runs at larger widths already took longer "
    "than predicted: the medians of NVMe under Megatron and of optimizers on the host would be 5 points and "
    "1 point worse.",
    "Rates of FlashAttention-2 for all fused attention (arXiv:2307.08691: 173 TFLOP/s on an A100 and 294 "
    "on an H100, causal, heads of 128, 4,096 tokens, 3.5 times forward's FLOPs): all six runs of fms-fsdp "
    "would be 2 to 6 points closer, but those of llm-foundry with 8,192 tokens and more 6 to 9 points "
    "farther off, 16% at the mean: what kernel a run has its record does not say.",
    "A lower rate for products whose depth is no multiple of 8 (0.7 of it on an A100, arXiv:2401.14489): "
    "heads of 150 have them, in 2% of the FLOPs; no matrix of a compared run does.",
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
