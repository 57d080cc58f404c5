"""How near each quantised value of an answer is to being rounded the other way.

FSQ rounds. Where a value lies within the float32 noise of a boundary, two orders of summation (another batch
size, a recompute after preemption) may round it differently, and the patches after it differ by 1e-2: a coin
toss that says nothing about the engine. Requests that are compared bit by bit must not contain one.
"""

import numpy as np
import torch
from torch import Tensor, nn

from models.voxcpm2.config import read_config
from models.voxcpm2.prompt import Prompt
from models.voxcpm2.weights import load_model_weights, read_checkpoint
from tests.support.dense_model import DenseVoxCPM2
from tests.support.golden import CHECKPOINT
from tests.support.workload import Spoken

NOISE = 1e-5  # ten times what float32 sums of this model differ by, in quantisation steps


def load_dense_model() -> DenseVoxCPM2:
    """The fixture checkpoint without vLLM, in float64."""
    model = DenseVoxCPM2(read_config(CHECKPOINT))
    load_model_weights(model, read_checkpoint(CHECKPOINT))
    return model.double()


@torch.inference_mode()
def smallest_margin(model: DenseVoxCPM2, prompt: Prompt, answer: Spoken) -> float:
    """Distance to the nearest rounding boundary over all audio positions, in quantisation steps."""
    scaled: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scaled.append(torch.tanh(output) * model.fsq.scale)

    generated = answer.latents[:-1]
    length = len(prompt.token_ids)
    is_audio = np.ones(length + len(generated), dtype=bool)
    is_audio[:length] = False
    for span in prompt.spans:
        is_audio[span.start : span.start + span.length] = True
    latents = np.zeros((len(is_audio), *generated.shape[1:]))
    latents[is_audio] = np.concatenate((prompt.latents, generated))
    token_ids = np.zeros(len(is_audio), dtype=np.int64)
    token_ids[:length] = prompt.token_ids
    hook = model.fsq.in_proj.register_forward_hook(keep)
    model.last_states(torch.from_numpy(token_ids), torch.from_numpy(is_audio), torch.from_numpy(latents))
    hook.remove()
    values = scaled[0][torch.from_numpy(is_audio)]
    return float(((values - values.floor()) - 0.5).abs().min())
