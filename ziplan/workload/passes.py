"""Bytes that kernels move and how many of them run, in forward and in backward."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Passes:
    """What passes through the GPU's memory for one token, and kernels that run whatever the tokens.

    Kernels of matrix products and of fused attention are counted, their bytes are not: those hide
    behind what they compute. Views are nothing.
    """

    forward: float = 0.0
    backward: float = 0.0
    forward_kernels: float = 0.0
    backward_kernels: float = 0.0

    def __add__(self, other: Passes) -> Passes:
        return Passes(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Passes:
        return Passes(*(times * value for value in astuple(self)))

    __rmul__ = __mul__
