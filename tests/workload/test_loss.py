"""What stands of logits while a loss is made, against what PyTorch really allocates."""

from __future__ import annotations

import weakref

import pytest
from runtimes.toy import cluster, plan, workload

from ziplan.laws.law import Derivation
from ziplan.runtimes import RUNTIMES
from ziplan.workload.loss import LOGIT_BYTES

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

TOKENS, VOCABULARY, WIDTH = 128, 8_192, 4


class Peak(TorchDispatchMode):
    """The most bytes that tensors made within it took at a time."""

    def __init__(self):
        super().__init__()
        self._alive, self._now, self.most = {}, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._enter(tensor.untyped_storage())
        return made

    def _enter(self, storage):
        key = storage._cdata
        if key not in self._alive:
            self._alive[key] = storage.nbytes()
            self._now += storage.nbytes()
            self.most = max(self.most, self._now)
            weakref.finalize(storage, self._leave, key)

    def _leave(self, key):
        self._now -= self._alive.pop(key, 0)


def in_16_bits(logits, labels):
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1)), logits


def shifted_in_fp32(logits, labels):
    """As models of transformers before 4.45: the output's logits are the fp32 ones."""
    logits = logits.float()
    kept = logits[..., :-1, :].contiguous()
    wanted = labels[..., 1:].contiguous()
    return torch.nn.functional.cross_entropy(kept.view(-1, VOCABULARY), wanted.view(-1)), logits


def copied_to_fp32(logits, labels):
    """As `ForCausalLMLoss` since: the output's logits stay in 16 bits."""
    loss = torch.nn.functional.cross_entropy(logits.float().view(-1, VOCABULARY), labels.view(-1))
    return loss, logits


class InPlace(torch.autograd.Function):
    """Cross entropy that makes its softmax, and its gradient, where its input stands."""

    @staticmethod
    def forward(ctx, logits, labels):
        logits.sub_(logits.amax(dim=-1, keepdim=True))
        right = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        softmax = logits.exp_()
        total = softmax.sum(dim=-1)
        softmax.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, labels)
        return total.log() - right

    @staticmethod
    def backward(ctx, gradient):
        softmax, labels = ctx.saved_tensors
        right = labels.unsqueeze(-1)
        softmax.scatter_add_(-1, right, -torch.ones_like(right, dtype=softmax.dtype))
        return softmax.mul_(gradient.unsqueeze(-1)), None


def in_place(logits, labels):
    return InPlace.apply(logits.float(), labels).mean(), logits


def peak(made, batch, held):
    """Bytes per token and vocabulary entry from the logits to the end of backward."""
    hidden = torch.randn(batch, TOKENS // batch, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(VOCABULARY, WIDTH, dtype=torch.bfloat16)
    labels = torch.randint(0, VOCABULARY, (batch, TOKENS // batch))
    with Peak() as measured:
        loss, output = made(torch.nn.functional.linear(hidden, head), labels)
        if not held:
            del output
        loss.backward()
    return measured.most / (TOKENS * VOCABULARY)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(
    ("made", "kind"),
    [(in_16_bits, None), (shifted_in_fp32, "upcast"), (copied_to_fp32, "upcast"), (in_place, "in-place")],
)
def test_what_a_loss_takes_lies_in_the_range(made, kind, batch, held):
    low, high = LOGIT_BYTES[kind]
    small = 0.3 + 16 / (TOKENS / batch)  # the head itself; a sequence that is shifted is a token shorter
    assert low - small <= peak(made, batch, held) <= high + small


def test_ends_are_reached():
    assert peak(in_16_bits, 1, held=False) == pytest.approx(LOGIT_BYTES[None][0], abs=0.3)
    assert peak(copied_to_fp32, 1, held=False) == pytest.approx(LOGIT_BYTES["upcast"][0], abs=0.3)
    assert peak(shifted_in_fp32, 1, held=True) == pytest.approx(LOGIT_BYTES["upcast"][1], abs=0.3)
    assert peak(in_place, 1, held=False) == pytest.approx(LOGIT_BYTES["in-place"][0], abs=0.3)
    assert peak(in_place, 1, held=True) == pytest.approx(LOGIT_BYTES["in-place"][1], abs=0.3)


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
def test_a_stated_loss_narrows_the_line(runtime):
    machine, chosen = cluster(gpus=8), plan("hbm", "hbm", dp_degree=8.0)

    def line(loss):
        work = workload()
        work = type(work)(
            work.model, work.training.model_copy(update={"loss": loss}), work.precision, work.activations
        )
        real = RUNTIMES[runtime]
        book = real.ledger(Derivation(record=False), machine, work, real.settle(machine, work, chosen))
        (found,) = [one for one in book.lines if one.name == "logits and loss"]
        return found.low, found.high

    (low, high), fused, upcast = line(None), line("fused"), line("upcast")
    assert fused == (low / 3, high / 4)
    assert upcast == (2 * low, high)
