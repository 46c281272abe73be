"""Models that stand beside the trained one in the same job: of RLHF and of distillation.

Each has an engine of its own. A model that gives a token or a sequence one value, as a critic and
a reward model do, has a matrix of one output in place of the head over the vocabulary
(transformers' `AutoModelForSequenceClassification`, DeepSpeed-Chat's `RewardModel`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ziplan.units import Precision
from ziplan.workload.adapted import adapted, changed
from ziplan.workload.kept import kept_bytes
from ziplan.workload.model import ActivationBytes, Layer, Model, Operator
from ziplan.workload.model_file import CompanionEntry, Offload, Role
from ziplan.workload.training import Trainable, Training, Workload

ONE_VALUE: tuple[Role, ...] = ("critic", "reward")
"""Roles whose model gives one value in place of logits."""

TRAINED: tuple[Role, ...] = ("critic",)
"""Roles that are trained whole unless the file says otherwise."""


@dataclass(frozen=True)
class Companion:
    """A model beside the trained one; `name` is its role, numbered from the second of a role on.

    Of `model` nothing is trainable where it is frozen. `offload` says where its parameters live:
    as the plan's (auto), on the GPU (none) or on the host (cpu).
    """

    name: str
    role: Role
    model: Model
    trainable: Trainable
    offload: Offload
    activations: ActivationBytes

    @property
    def trained(self) -> bool:
        """Whether training changes anything of it; if not, its engine only infers."""
        return self.model.trainable_params > 0

    def workload(self, main: Workload) -> Workload:
        """The companion as the workload of its own engine, under the settings of the trained model."""
        training: Training = main.training.model_copy(update={"trainable": self.trainable})
        return Workload(self.model, training, main.precision, self.activations)


def names_of(roles: Iterable[Role]) -> list[str]:
    """A name for each companion: "reference", "reward", "reward-2"."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for role in roles:
        seen[role] = seen.get(role, 0) + 1
        names.append(role if seen[role] == 1 else f"{role}-{seen[role]}")
    return names


def companion(
    name: str, entry: CompanionEntry, model: Model, training: Training, precision: Precision
) -> Companion:
    """The companion that `entry` states, of the model that it names.

    ValueError where the model lacks what is said of it.
    """
    if entry.role in ONE_VALUE:
        model = with_one_value(model)
    trainable = entry.trainable or ("all" if entry.role in TRAINED else "none")
    return Companion(
        name=name,
        role=entry.role,
        model=untrained(model) if trainable == "none" else adapted(model, trainable),
        trainable="all" if trainable == "none" else trainable,
        offload=entry.offload,
        activations=kept_bytes(model, training.attention, precision, training.dropout, training.kernels),
    )


def untrained(model: Model) -> Model:
    """The model with nothing to train."""
    return changed(model, lambda operator: (replace(operator, trainable=False),))


def with_one_value(model: Model) -> Model:
    """The model with one output in place of the vocabulary's; ValueError where it has no such head."""

    def head(operator: Operator) -> bool:
        wide = operator.kind == "linear" and operator.out_features == model.vocab_size
        return wide and not operator.block

    if not any(head(operator) for operator in model.operators):
        raise ValueError(f"{model.name} has no head over a vocabulary that one value could stand for")

    def change(operator: Operator) -> Layer:
        if not head(operator):
            return (operator,)
        return (Operator("score", "linear", operator.in_features, 1, block=False),)

    return replace(changed(model, change), logits_share=0.0)
