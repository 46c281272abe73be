"""What is left of the GPUs' rate, and what buying more of them would take."""

from __future__ import annotations

from ziplan.laws.law import ceil, law, minimum
from ziplan.units import (
    Bytes,
    Count,
    Dollars,
    Flops,
    FlopsPerByte,
    FlopsPerSecond,
    Ratio,
    Seconds,
    Tokens,
    TokensPerSecond,
)


@law("article: The honest cost: efficiency versus simply buying GPUs")
def overlap_efficiency(arithmetic_intensity: FlopsPerByte, machine_balance: FlopsPerByte) -> Ratio:
    """Share of the all-HBM rate when a tier's transfers overlap perfectly with compute."""
    return minimum(1, arithmetic_intensity / machine_balance)


@law("arXiv:2104.07857 sec 4")
def serial_efficiency(arithmetic_intensity: FlopsPerByte, machine_balance: FlopsPerByte) -> Ratio:
    """Share of the all-HBM rate when a tier's transfers and compute take turns."""
    return arithmetic_intensity / (arithmetic_intensity + machine_balance)


@law("definition: at 1 only the longest takes time, at 0 all take turns")
def partly_overlapped_time(longest_time: Seconds, serial_time: Seconds, overlap: Ratio) -> Seconds:
    """Time of work beside other work of which only a share is really hidden."""
    return longest_time + (1 - overlap) * (serial_time - longest_time)


@law("article: The honest cost: efficiency versus simply buying GPUs")
def gpus_for_plain_stage3(state_bytes: Bytes, usable_hbm_per_gpu: Bytes) -> Count:
    """GPUs whose HBM holds all state, none offloaded."""
    return ceil(state_bytes / usable_hbm_per_gpu)


@law("article: The honest cost: efficiency versus simply buying GPUs")
def tokens_per_second(tokens_per_step: Tokens, step_time: Seconds) -> TokensPerSecond:
    """Tokens trained each second."""
    return tokens_per_step / step_time


@law("arXiv:2104.07857 sec 8")
def achieved_flops_per_s(flops: Flops, step_time: Seconds) -> FlopsPerSecond:
    """Rate of useful arithmetic over a whole step."""
    return flops / step_time


@law("article: The honest cost: efficiency versus simply buying GPUs")
def step_cost(
    node_hour_price: Dollars, node_count: Count, step_time: Seconds, hour_length: Seconds
) -> Dollars:
    """Price of one step on so many nodes."""
    return node_hour_price * node_count * step_time / hour_length
