"""Dossiers of real problems, each gathered once for all tests that look at it."""

from functools import cache
from pathlib import Path

from ziplan.cli.given import Given
from ziplan.cli.report_inputs import gathered

CONFIG = Path(__file__).parents[2] / "examples" / "check" / "ds_config.json"
LENGTH = {"sequence_length": 4096}


@cache
def dossier(kind):
    """One of KINDS: with NVMe, too large, without offload, a config, several models, no known time, ..."""
    if kind == "offloaded":
        given = Given(settings=("tiers.dram.capacity=512 GB",), training=LENGTH)
        return gathered("llama-3.1-70b", "dgx-a100-80g", given, None, None)
    if kind == "too large":
        return gathered("llama-3.1-70b", "rtx-4090-desktop", Given(training=LENGTH), None, None)
    if kind == "plain":
        return gathered("gpt2-xl", "dgx-a100-80g", Given(training={"sequence_length": 1024}), None, None)
    if kind == "config":
        return gathered("llama-2-70b", "dgx-a100-80g", Given(training=LENGTH), CONFIG, None)
    if kind == "unknown":
        given = Given(training={**LENGTH, "precision": "fp32"})
        return gathered("llama-3.1-8b", "dgx-a100-80g", given, None, None)
    if kind == "slow network":
        training = {"sequence_length": 1024, "global_batch_size": 64}
        given = Given(settings=("links.network.bandwidth=1 Gbit/s",), training=training)
        return gathered("gpt2-xl", "2x aws-g5.48xlarge", given, None, None)
    assert kind == "several"
    given = Given(training={"sequence_length": 1024}, companions=("reference=llama-2-7b",))
    return gathered("llama-2-7b", "dgx-a100-40g", given, None, None)


KINDS = ("offloaded", "too large", "plain", "config", "several", "unknown", "slow network")
