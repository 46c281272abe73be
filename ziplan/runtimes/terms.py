"""The terms that a step's time is made of: one name for each flow or kind of work, whatever the runtime.

docs/names.md lists them with what they mean. A runtime's step program, the played step, its trace and every
report go by these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HOST_NORM: Final = "gradient norm on the host"
TEMPORARIES: Final = "memory for the update"
OVERFLOW: Final = "overflow check on the host"
PACKED: Final = "copies of parameters to gather"
UNPACKED: Final = "copies of gathered parameters"
GRADIENT_PAGES: Final = "memory for gradients"
UPDATED_PAGES: Final = "memory for updated parameters"
UPDATED_COPY: Final = "updated parameter copy"
UPDATED_GATHER: Final = "updated parameter gather"
GRADIENTS_DOWN: Final = "gradient copy to host"
GRADIENTS_UP: Final = "gradient copy to GPU"
TO_THE_OPTIMIZER: Final = "gradient copy to optimizer"
GRADIENT_COPIES: Final = (GRADIENTS_DOWN, GRADIENTS_UP, GRADIENT_PAGES, TO_THE_OPTIMIZER)
"""A rank's own gradients between GPU and host, in the order that a micro-step has them."""
GRADIENT_PASSES: Final = "gradient passes"
SUMMED: Final = "passes of sums"
UPDATE_PASSES: Final = "passes of the update"
OTHERS_GRADIENTS: Final = "gradient copies of other ranks"
ACTIVATIONS_DOWN: Final = "activation copy to host"
ACTIVATIONS_UP: Final = "activation copy to GPU"

TERMS: Final[Mapping[str, str]] = {
    "compute": "products with matrices on the GPU",
    "attention": "attention on the GPU, where it is a kernel of its own",
    "partial waves": "multiprocessors that idle while a product's last tiles are computed",
    "GPU memory": "what only moves bytes through the GPU's own memory",
    "kernel launches": "the host's time for launching kernels, where the GPU waits for it",
    "Python hooks": "Python's time for visits of modules, where the GPU waits for it",
    "gather": "parameters, from all ranks to each",
    PACKED: "a rank's own parameters, cast and copied together in the GPU's own memory to be gathered",
    UNPACKED: "parameters that were gathered together, copied apart in the GPU's own memory",
    "parameter read": "parameters, from NVMe to host memory, in forward and backward",
    "parameter copy": "parameters, from host memory to the GPU, in forward and backward",
    "parameter stream": "parameters, from an outer tier to the GPU, as the article has it",
    UPDATED_PAGES: "host memory that the system hands out anew for the cast of updated parameters (stage 3)",
    UPDATED_COPY: "parameters that the host has updated, to the GPU that keeps them, once a step",
    UPDATED_GATHER: "updated parameters, from all ranks to each, once a step (stages 1 and 2)",
    "gradient reduce": "gradients, summed over the ranks",
    GRADIENT_PASSES: "gradients, through the GPU's own memory: into buckets, averaged, flattened, added up",
    SUMMED: "gradients, in the GPU's own memory on the stream that sums them: divided, cast, added up",
    GRADIENTS_DOWN: "gradients, from the GPU to host memory, in a micro-step",
    GRADIENTS_UP: "gradients of earlier micro-steps, from host memory to the GPU, to be added to",
    TO_THE_OPTIMIZER: "gradients, from the GPU to host memory in the optimizer's precision, once a step",
    GRADIENT_PAGES: "host memory that the system hands out anew for gradients that the host casts (stage 3)",
    OTHERS_GRADIENTS: "gradients of other ranks, whose copies this rank waits for",
    "gradient accumulation": "gradients added to those of earlier micro-steps by the host's processors",
    "gradient write": "gradients, from host memory to NVMe",
    "gradient stream": "gradients, from the GPU to an outer tier, as the article has it",
    "gradient exchange": "gradients and updated parameters between replicas, once a step",
    ACTIVATIONS_DOWN: "activation checkpoints, from the GPU to host memory, in forward",
    ACTIVATIONS_UP: "activation checkpoints, from host memory to the GPU, in backward",
    "GPU optimizer": "the update of parameters on the GPU",
    UPDATE_PASSES: "what the GPU updates, and its gradients: flattened, cast, measured, scaled, cast back",
    HOST_NORM: "gradients on the host, read by one thread of each rank for their norm",
    "CPU optimizer": "the update of parameters by the host's processors",
    OVERFLOW: "fp16 gradients on the host, looked through for what is infinite or no number (stage 3)",
    TEMPORARIES: "host memory that the system hands out anew for tensors that an unfused update makes",
    "optimizer read": "optimizer state and gradients, from NVMe to host memory",
    "optimizer write": "optimizer state and updated parameters, from host memory to NVMe",
    "tensor parallel": "all-reduces among the ranks that share a matrix",
    "stage to stage": "what passes from one stage of a pipeline to the next",
    "pipeline bubble": "what a stage waits for while others begin and end",
    "uneven stages": "what a stage waits for another that has more to do",
}
"""Name to what is moved, from where to where, or worked at. Of another model of the job: "ROLE: NAME"."""
