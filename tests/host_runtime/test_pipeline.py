"""Layers on consecutive tiles: exactly what they give one after the other on one tile."""

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw.isa import HEADER, RECORD_BYTES
from ringloom.numerics.reference import matmul_reference, qlinear_matmul
from tests.support.tiles import streams_of, tiles

WIDTHS = [(9, 20, 12, 5), (16, 9, 20, 17, 6), (7, 5), (30, 120, 8)]


@pytest.fixture(scope="module")
def device():
    with tiles(4, seed=1) as dev:
        yield dev


def network(rng, widths):
    """Layers and their exact answer: qmatmul everywhere, int32 in the last one."""
    layers = []
    for i, (k, n) in enumerate(zip(widths, widths[1:], strict=False)):
        scale = rng.uniform(0.01, 0.03, n).astype(np.float32)
        options = {"a_scale": 0.02, "a_zero_point": 5 if i else 3, "b_scale": scale,
                   "b_zero_point": rng.integers(-9, 9, n).astype(np.int8), "y_scale": 0.05 * k ** 0.5,
                   "y_zero_point": np.uint8(5), "activation": "relu",
                   "bias": rng.integers(-99, 99, n).astype(np.int32)}
        layers.append((rng.integers(-128, 128, (k, n)).astype(np.int8), options))
    weights, last = layers[-1]
    layers[-1] = (weights, {name: last[name] for name in ("a_zero_point", "b_zero_point", "bias")})

    def answer(x):
        for w, options in layers[:-1]:
            x = qlinear_matmul(x, w, **options)
        return matmul_reference(x, weights, last["a_zero_point"], last["b_zero_point"], last["bias"])

    return layers, answer


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("micro_batch", [None, 1, 5])
def test_exact(device, widths, micro_batch):
    rng = np.random.default_rng(len(widths))
    layers, answer = network(rng, widths)
    pipe = device.pipeline(layers, tiles=range(4) if len(layers) == 4 else range(1, 4), micro_batch=micro_batch)
    for shape in ((1,), (40,), (3, 5), ()):
        x = rng.integers(0, 256, (*shape, widths[0])).astype(np.uint8)
        want = answer(x.reshape(-1, widths[0])).reshape(*shape, widths[-1])
        np.testing.assert_array_equal(pipe(x), want)
        result = pipe(device.put(x, tile=0))
        assert result.tile == pipe.tiles[-1]
        np.testing.assert_array_equal(np.asarray(result), want)
    assert pipe(np.zeros((0, widths[0]), np.uint8)).shape == (0, widths[-1])


def test_every_tile_works_and_none_waits_for_the_host(device):
    """One job; each tile signals its neighbours, and every signal is taken."""
    layers, answer = network(np.random.default_rng(0), (8, 8, 8, 8))
    pipe = device.pipeline(layers, micro_batch=4)
    job = pipe.submit(np.ones((32, 8), np.uint8))
    assert list(job.parts) == [0, 1, 2]
    sent = dict.fromkeys(range(3), 0)
    for tile, raw in streams_of(job).items():
        for at in range(0, len(raw), RECORD_BYTES):
            header = HEADER.decode(raw[at:at + RECORD_BYTES])
            sent[tile] += sum(header[f"signal{i}_enable"] & header[f"signal{i}_remote"] for i in range(2))
    assert sent == {0: 8, 1: 8 + 6, 2: 6}
    np.testing.assert_array_equal(job.result(), answer(np.ones((32, 8), np.uint8)))
    assert job.macs == 32 * 64 * 3


def test_more_layers_than_tiles(device):
    """Neighbouring layers share a tile, as evenly as their weights allow; one tile takes them all."""
    rng = np.random.default_rng(2)
    layers, answer = network(rng, (10, 30, 30, 9, 8, 7, 4))
    x = rng.integers(0, 256, (21, 10)).astype(np.uint8)
    for group in (range(3), range(2), [1]):
        for micro_batch in (None, 6):
            pipe = device.pipeline(layers, tiles=group, micro_batch=micro_batch)
            np.testing.assert_array_equal(pipe(x), answer(x))
            assert np.concatenate([[layer.number for layer in stage] for stage in pipe._stages]).tolist() == [*range(6)]
            assert len(pipe.tiles) == len(group)


def test_prepared_weights(device):
    rng = np.random.default_rng(1)
    layers, answer = network(rng, (12, 9, 7))
    prepared = [(device.prepare(w, zero_point=o["b_zero_point"], bias=o["bias"]),
                 {name: v for name, v in o.items() if name not in ("b_zero_point", "bias")}) for w, o in layers]
    x = rng.integers(0, 256, (20, 12)).astype(np.uint8)
    pipe = device.pipeline(prepared)
    jobs = [pipe.submit(x), pipe.submit(x[:5])]
    np.testing.assert_array_equal(jobs[1].result(), answer(x[:5]))
    np.testing.assert_array_equal(jobs[0].result(), answer(x))


W, Q = np.ones((4, 4), np.int8), {"a_scale": 1.0, "a_zero_point": 0, "b_scale": 1.0, "y_scale": 1.0,
                                  "y_zero_point": np.int8(0)}
BAD = [
    (lambda d: d.pipeline([]), rl.ShapeError, "no layers"),
    (lambda d: d.pipeline(W), rl.UnsupportedError, "list of"),
    (lambda d: d.pipeline([(W, Q), (W[:3], Q)]), rl.ShapeError, "layer 1.*layer 0 gives 4"),
    (lambda d: d.pipeline([(W, {}), (W, Q)]), rl.UnsupportedError, "layer 0.*int32"),
    (lambda d: d.pipeline([W]), rl.UnsupportedError, "layer 0.*weights, options"),
    (lambda d: d.pipeline([(W, Q)], micro_batch=0), rl.UnsupportedError, "micro_batch = 0"),
    (lambda d: d.pipeline([(W, Q)], micro=1), rl.UnsupportedError, "did you mean 'micro_batch'"),
    (lambda d: d.pipeline([(W, Q | {"out": 1})]), rl.UnsupportedError, "layer 0: out="),
    (lambda d: d.pipeline([(W, Q | {"y_scale": 0.0})])(W), rl.UnsupportedError, "layer 0: y_scale.*zero"),
    (lambda d: d.pipeline([(W, Q)])(W[:, :3]), rl.ShapeError, "layer 0 takes"),
    (lambda d: d.pipeline([(W, Q)])(W.astype(float)), rl.UnsupportedError, "float64"),
    (lambda d: d.pipeline([(np.ones((4, 200), np.int8), Q)])(W), rl.UnsupportedError, "200 col.*parameters.columns"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_refusals(device, number):
    call, kind, text = BAD[number]
    with pytest.raises(kind, match=text):
        call(device)
