"""How much of a sequence attentions see where some have a window."""

from __future__ import annotations

from ziplan.laws.counts import chunked_share, windowed_share
from ziplan.workload.model import Model


def seen_share(model: Model, sequence_length: float) -> float:
    """Share of a causal sequence's pairs of tokens that attentions see, on average over all of them."""
    unseen = 0.0
    for window in model.windows:
        law = chunked_share if window.chunked else windowed_share
        part = law(window_length=float(window.tokens), sequence_length=sequence_length)
        unseen += (1.0 - part) * window.attentions / model.attentions
    return 1.0 - unseen
