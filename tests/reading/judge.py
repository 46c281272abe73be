"""DeepSpeed's own classes asked about configs, in a process of their own: JSON in, JSON out.

Run as `python judge.py` with a list of questions on stdin: each names a function below and its arguments.
"""

import contextlib
import io
import json
import sys
import warnings


def deepspeed_config(config, ranks):
    """What `DeepSpeedConfig` makes of a mapping, or what it raises."""
    from deepspeed.runtime import config as module

    module.dist.get_rank = lambda: 0
    module.dist.get_world_size = lambda *_: ranks
    read = module.DeepSpeedConfig(config)
    zero, fp16, bf16 = read.zero_config, read.float16_config, read.bfloat16_config
    return {
        "batch": [
            read.train_batch_size,
            read.train_micro_batch_size_per_gpu,
            read.gradient_accumulation_steps,
        ],
        "zero": zero.model_dump(mode="json", by_alias=True),
        "fp16": fp16.model_dump(mode="json"),
        "bf16": bf16.model_dump(mode="json"),
        "aio": read.aio_config,
        "gradient_clipping": read.gradient_clipping,
        "grad_accum_dtype": read.grad_accum_dtype,
    }


def answer(question):
    """The answer, or the exception's name and message."""
    name, *arguments = question
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return {"answer": globals()[name](*arguments)}
    except Exception as error:  # noqa: BLE001
        return {"error": type(error).__name__, "message": str(error)[:2000]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import logging

    logging.disable(logging.CRITICAL)
    questions = json.load(sys.stdin)
    json.dump([answer(question) for question in questions], sys.stdout)
