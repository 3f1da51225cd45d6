"""The demo: a digits classifier, trained as float, quantized, run on the tile, every int8 checked."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringloom.numerics.reference import qlinear_matmul

from .device import Device, open
from .errors import UnsupportedError
from .profile import Profile

__all__ = ["Layer", "Report", "run", "train"]

_WAVE_IMAGES = 2  # a wave one can read, within seconds on the pure-Python simulator


@dataclass
class Layer:
    """A quantized layer: int8 weights (K, N) with one scale a column, int32 bias, and the scales at its ends."""

    weights: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    a_scale: np.float32
    y_scale: np.float32
    y_zero_point: Any
    activation: str | None

    def call(self) -> dict[str, Any]:
        """The keywords of ``qmatmul``, but for the weights' own."""
        return {"a_scale": self.a_scale, "a_zero_point": 0, "y_scale": self.y_scale, "y_zero_point": self.y_zero_point,
                "activation": self.activation}


@dataclass
class Report:
    images: int
    float_accuracy: float
    int8_accuracy: float
    mismatches: int
    checked: int
    profile: Profile
    waves: Path | None


def train() -> tuple[list[Layer], np.ndarray, np.ndarray, float]:
    """A 64-64-32-10 network on scikit-learn's digits: layers, test images (uint8), their labels, float accuracy."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
        from sklearn.neural_network import MLPClassifier
    except ImportError as error:
        raise UnsupportedError("the demo trains with scikit-learn: pip install 'ringloom[demo]'") from error
    digits = load_digits()
    images, test, labels, test_labels = train_test_split(
        digits.data.astype(np.uint8), digits.target, test_size=0.3, random_state=0, stratify=digits.target)
    model = MLPClassifier((64, 32), max_iter=60, random_state=0, early_stopping=False, tol=0.0, n_iter_no_change=60)
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops at max_iter on purpose
        model.fit(images / 16, labels)

    layers, hidden, a_scale = [], images / 16, np.float32(1 / 16)
    for i, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        last = i == len(model.coefs_) - 1
        hidden = hidden @ weights + bias
        hidden = hidden if last else np.maximum(hidden, 0)
        scale = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
        y_scale = np.float32(np.abs(hidden).max() / 127 if last else hidden.max() / 255)
        layers.append(Layer(
            np.rint(weights / scale).astype(np.int8), scale, np.rint(bias / (a_scale * scale)).astype(np.int32),
            a_scale, y_scale, np.int8(0) if last else np.uint8(0), None if last else "relu"))
        a_scale = y_scale
    return layers, test, test_labels, float(model.score(test / 16, test_labels))


def run(config: str = "inference", sim: str = "verilated", *, overrides: dict[str, Any] | None = None,
        waves: Path | None = Path("ringloom_demo.vcd"), tell: Callable[[str], None] = lambda text: None) -> Report:
    """Train, offload, check, profile; write the waves of the first matmul on ``tiny``. ``tell``: what runs now."""
    tell("training a 64-64-32-10 network on scikit-learn's digits")
    layers, images, labels, float_accuracy = train()
    tell(f"opening {config} on {sim}")
    mismatches = checked = 0
    with open(config, sim=sim, overrides=overrides) as device:
        prepared = [device.prepare(layer.weights, scale=layer.scale, bias=layer.bias) for layer in layers]
        tell(f"classifying {len(images)} images on the tile")
        with device.profile() as profile:
            x: Any = device.put(images)
            outputs = []
            for layer, weights in zip(layers, prepared, strict=True):
                x = device.qmatmul(x, weights, **layer.call())
                outputs.append(np.array(x))
    tell("checking every value against the integer reference")
    reference = images
    for layer, output in zip(layers, outputs, strict=True):
        reference = qlinear_matmul(reference, layer.weights, b_scale=layer.scale, b_zero_point=0, bias=layer.bias,
                                   **layer.call())
        mismatches += int((output != reference).sum())
        checked += output.size
    accuracy = float((outputs[-1].argmax(axis=1) == labels).mean())
    if waves is not None:
        tell("recording the first matmul on one tile of tiny")
        mismatches += _record(layers[0], images[:_WAVE_IMAGES], waves)
    return Report(len(images), float_accuracy, accuracy, mismatches, checked, profile, waves)


def _record(layer: Layer, images: np.ndarray, path: Path) -> int:
    """Write the VCD of the first layer on ``tiny``; how many of its values are wrong."""
    device: Device
    with open("tiny", sim="python", overrides={"tiles": 1}) as device:
        weights = device.prepare(layer.weights, scale=layer.scale, bias=layer.bias)
        with device.waves(path):
            got = device.qmatmul(images, weights, **layer.call())
    want = qlinear_matmul(images, layer.weights, b_scale=layer.scale, b_zero_point=0, bias=layer.bias, **layer.call())
    return int((np.asarray(got) != want).sum())
