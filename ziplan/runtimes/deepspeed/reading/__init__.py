"""Reading configs that exist: DeepSpeed's own, accelerate's, and those of the Hugging Face Trainer."""

from ziplan.runtimes.deepspeed.reading.forms import Form, Opened, open_config
from ziplan.runtimes.deepspeed.reading.read import Question, Reading, Trainer, read_config
from ziplan.runtimes.deepspeed.reading.remarks import Remark
from ziplan.runtimes.deepspeed.reading.settings import Settings
from ziplan.runtimes.deepspeed.reading.settle import Settled, settled_plan, stated_training

__all__ = [
    "Form",
    "Opened",
    "Question",
    "Reading",
    "Remark",
    "Settings",
    "Settled",
    "Trainer",
    "open_config",
    "read_config",
    "settled_plan",
    "stated_training",
]
