"""The data-parallel training step: the same integers as numpy, and a loss that falls."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ringloom import training
from ringloom.cli import main


@pytest.mark.parametrize("tiles,images", [(8, 256), (3, 100), (1, 40), (4, 3)])
def test_steps_are_numpys(tiles, images):
    """Ragged shares of the batch and fewer images than tiles included; the expected sums are over the whole batch."""
    report = training.run("training", "functional", overrides={"tiles": tiles}, steps=4, images=images)
    assert report.mismatches == 0 and report.checked == 4 * (64 * 32 + 32 * 10)
    assert report.tiles == min(tiles, images)
    losses = [step.loss for step in report.steps]
    assert losses[-1] < 0.8 * losses[0]


def test_reference_is_a_gradient():
    """Against the plain formula in floating point: what the integers stand for."""
    images, labels = training.digits(60)
    weights = training.Weights(seed=1)
    w1, w2 = (w.astype(float) for w in weights.small)
    hidden = np.clip(np.rint(images @ w1 / 16), 0, 255)
    logits = hidden @ w2 / 2048
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    error = 127 * (chances - np.eye(10)[labels])
    back = (hidden > 0) * (np.rint(error) @ w2.T / 64)
    step = training.numpy_step(weights, images, labels)
    for got, want in zip(step.gradients, (images.T @ back, hidden.T @ error), strict=True):
        assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.99


def test_more_steps_learn_more():
    images, labels = training.digits(512)
    weights = training.Weights()
    before = training.accuracy(weights, images, labels)
    for _ in range(25):
        weights.change(training.numpy_step(weights, images, labels).gradients, len(images))
    assert training.accuracy(weights, images, labels) > max(0.8, before)


def test_command():
    run = CliRunner().invoke(main, ["train", "--sim", "functional", "--set", "tiles=2", "--steps", "2", "--images",
                                    "64", "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["mismatches"] == 0 and len(report["losses"]) == 2 and report["tiles"] == 2


@pytest.mark.parametrize("command", [["matmul"], ["profile", "--quantized", "--prepared"]])
def test_products_from_the_command_line(command):
    run = CliRunner().invoke(main, [*command, "20", "30", "10", "--sim", "functional", "--config", "tiny", "--set",
                                    "tiles=3", "--parallel", "tensor-k", "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["correct"]
