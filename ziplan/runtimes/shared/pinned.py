"""Page-locked memory from PyTorch's caching host allocator, which rounds each block up to a power of two."""

from __future__ import annotations

from ziplan.laws.law import law, power_of_two
from ziplan.runtimes.shared.facts import Facts
from ziplan.units import Bytes, Count

BYTE = 1.0
"""What a block is a power of two of."""


@law("PyTorch 2 c10 CachingHostAllocator: blocks are powers of two; measured in vllm issue 56410")
def pinned_block_bytes(requested_bytes: Bytes, block_unit: Bytes, block_count: Count) -> Bytes:
    """Bytes of so many equal blocks that together hold what is asked for."""
    return block_count * block_unit * power_of_two(requested_bytes / (block_count * block_unit))


def pinned_high(f: Facts, label: str, amount: float, block_count: float) -> float:
    """The most that pinning `amount` bytes in so many equal blocks takes: rounded up where PyTorch rounds."""
    if not f.rounds_pinned:
        return amount
    return f.derivation.apply(
        pinned_block_bytes, label, requested_bytes=amount, block_unit=BYTE, block_count=block_count
    )
