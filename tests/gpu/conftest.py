"""What needs a real GPU is skipped where there is none."""

import pytest
from gpu.compare import opened

from ziplan.bench.measurement import CannotMeasure


@pytest.fixture(scope="session")
def session():
    """The GPUs of this machine."""
    try:
        return opened()
    except CannotMeasure as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def torch(session):
    """Torch with CUDA, to compare with."""
    from ziplan.bench.cuda.matmul import torch_with_cuda

    try:
        return torch_with_cuda()
    except CannotMeasure as problem:
        pytest.skip(str(problem))
