"""Data-parallel training in integers: digits on a 64-32-10 network, gradients on the tiles, summed over the ring.

Each tile has a part of the batch in its own memory, and its own copy of the weights. A step of a tile:

    h  = relu(x @ w1), uint8         z  = h @ w2, int32
    e  = softmax(z) - labels, int8   dw2 = h.T @ e, int32
    dh = e @ w2.T, int8, where h > 0 dw1 = x.T @ dh, int32

Then dw1 and dw2 are all-reduced, and the weights change by them. Products run on the tiles; what goes value by value
(softmax, mask, update) is the host's, since a tile has no engine for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringloom.numerics.reference import matmul_reference, qlinear_matmul

from .device import Device, open
from .errors import UnsupportedError
from .profile import Profile

__all__ = ["Report", "Step", "Weights", "accuracy", "device_step", "digits", "error_of", "numpy_step", "run"]

_HIDDEN = {"a_scale": 1.0, "a_zero_point": 0, "b_scale": 1.0, "y_scale": 16.0, "y_zero_point": np.uint8(0),
           "activation": "relu"}
_BACK = {"a_scale": 1.0, "a_zero_point": 0, "b_scale": 1.0, "y_scale": 64.0, "y_zero_point": np.int8(0)}
_LOGIT = 2.0 ** -11        # real value of one unit of z
_FRACTION = 16             # bits of a weight behind its int8
_RATE = (9, 10)            # shifts of dw1 and dw2, up, on their way into the weights


@dataclass
class Step:
    """Loss before the step, in nats an image, and the int32 sums of the gradients."""

    loss: float
    gradients: tuple[np.ndarray, np.ndarray]


@dataclass
class Report:
    steps: list[Step]
    accuracy: float
    mismatches: int
    checked: int
    tiles: int
    profile: Profile


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """``count`` images (count, 64) of 0..16 and their labels, from scikit-learn's data."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UnsupportedError("training takes its images from scikit-learn: pip install 'ringloom[demo]'") from error
    data = load_digits()
    if not 1 <= count <= len(data.data):
        raise UnsupportedError(f"images = {count}: must lie in 1..{len(data.data)}")
    order = np.random.default_rng(0).permutation(len(data.data))[:count]
    return data.data[order].astype(np.uint8), data.target[order]


def error_of(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The int8 error of each image and class, and the loss of each image."""
    real = logits * _LOGIT
    real = real - real.max(axis=1, keepdims=True)
    chances = np.exp(real) / np.exp(real).sum(axis=1, keepdims=True)
    target = np.eye(logits.shape[1])[labels]
    loss = -np.log(np.maximum(1e-12, (chances * target).sum(axis=1)))
    return np.rint(127 * (chances - target)).astype(np.int8), loss


class Weights:
    """Two layers as integers of ``_FRACTION`` bits behind the int8 that the tiles multiply with."""

    def __init__(self, seed: int = 0, hidden: int = 32) -> None:
        rng = np.random.default_rng(seed)
        self.full = [rng.integers(-24 << _FRACTION, 24 << _FRACTION, shape) for shape in ((64, hidden), (hidden, 10))]

    @property
    def small(self) -> list[np.ndarray]:
        """As int8."""
        return [np.clip((w + (1 << _FRACTION - 1)) >> _FRACTION, -127, 127).astype(np.int8) for w in self.full]

    def change(self, gradients: tuple[np.ndarray, ...], images: int) -> None:
        """Go down the gradients, sums over ``images`` images."""
        for w, gradient, shift in zip(self.full, gradients, _RATE, strict=True):
            w -= (gradient.astype(np.int64) << shift) // images


def device_step(device: Device, weights: Weights, shards: list[Any], labels: list[np.ndarray]) -> Step:
    """One step's loss and gradients, each shard on its tile. shards: images in the tiles' memories."""
    tiles = [shard.tile for shard in shards]
    w1, w2 = (device.prepare(w, tiles=tiles) for w in weights.small)
    hidden = device.each("qmatmul", shards, w1, **_HIDDEN)
    errors = [error_of(np.asarray(z), own) for z, own in zip(device.each("matmul", hidden, w2), labels, strict=True)]
    back = [device.put(e, tile=tile) for (e, _), tile in zip(errors, tiles, strict=True)]
    dw2 = device.each("matmul", hidden, back, transpose_a=True)
    turned = [device.put(weights.small[1], tile=tile) for tile in tiles]
    masked = []
    for dh, h, tile in zip(device.each("qmatmul", back, turned, transpose_b=True, **_BACK), hidden, tiles, strict=True):
        masked.append(device.put(np.where(np.asarray(h) > 0, np.asarray(dh), 0).astype(np.int8), tile=tile))
    dw1 = device.each("matmul", shards, masked, transpose_a=True)
    sums = tuple(np.array(device.all_reduce(gradient, out=gradient)[0]) for gradient in (dw1, dw2))
    loss = float(np.concatenate([loss for _, loss in errors]).mean())
    return Step(loss, (sums[0], sums[1]))


def numpy_step(weights: Weights, images: np.ndarray, labels: np.ndarray) -> Step:
    """The same integers for the whole batch at once, in numpy."""
    w1, w2 = weights.small
    hidden = qlinear_matmul(images, w1, b_zero_point=0, **_HIDDEN)
    error, loss = error_of(matmul_reference(hidden, w2), labels)
    back = np.where(hidden > 0, qlinear_matmul(error, w2.T, b_zero_point=0, **_BACK), 0).astype(np.int8)
    return Step(float(loss.mean()), (matmul_reference(images.T, back), matmul_reference(hidden.T, error)))


def accuracy(weights: Weights, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of ``images`` that the network names rightly."""
    w1, w2 = weights.small
    hidden = qlinear_matmul(images, w1, b_zero_point=0, **_HIDDEN)
    return float((matmul_reference(hidden, w2).argmax(axis=1) == labels).mean())


def run(config: str = "training", sim: str = "verilated", *, overrides: dict[str, Any] | None = None, steps: int = 10,
        images: int = 512, tell: Callable[[str], None] = lambda text: None) -> Report:
    """Train for ``steps`` steps of ``images`` images on all tiles; each gradient is checked against numpy."""
    if steps < 1:
        raise UnsupportedError(f"steps = {steps}: must be 1 or more")
    batch, labels = digits(images)
    done, wrong, checked = [], 0, 0
    tell(f"opening {config} on {sim}")
    with open(config, sim=sim, overrides=overrides) as device:
        tiles = min(device.config.tiles, images)
        cut = np.array_split(np.arange(images), tiles)
        shards = [device.put(batch[rows], tile=tile) for tile, rows in enumerate(cut)]
        weights, twin = Weights(), Weights()
        with device.profile() as profile:
            for step in range(steps):
                done.append(device_step(device, weights, shards, [labels[rows] for rows in cut]))
                weights.change(done[-1].gradients, images)
                tell(f"step {step + 1} of {steps}: loss {done[-1].loss:.3f}")
    for step_done in done:
        expected = numpy_step(twin, batch, labels)
        twin.change(expected.gradients, images)
        for got, want in zip(step_done.gradients, expected.gradients, strict=True):
            wrong += int((got != want).sum())
            checked += got.size
    return Report(done, accuracy(weights, batch, labels), wrong, checked, tiles, profile)
