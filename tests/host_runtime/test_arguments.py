"""Arguments of every kind that do not fit: each is refused by name, as one of our errors, and nothing is lost."""

import copy
import gc
import pickle

import numpy as np
import pytest

import ringloom as rl

A, B = np.ones((3, 4), np.int8), np.ones((4, 5), np.int8)
Q = {"a_scale": 0.1, "a_zero_point": 0, "b_scale": 0.1, "b_zero_point": 0, "y_scale": 0.1, "y_zero_point": np.int8(0)}
RAGGED = [[1, 2], [3]]


@pytest.fixture(scope="module")
def device():
    with rl.open("tiny", sim="functional") as dev:
        yield dev


@pytest.fixture(scope="module")
def weights(device):
    return device.prepare(B, scale=0.1, zero_point=3, bias=np.zeros(5, np.int32))


def q(device, b=B, **options):
    return device.qmatmul(A, b, **(Q | options))


CALLS = {
    "submit kind list": (lambda d, w: d.submit([], A, B), "submit"),
    "submit kind none": (lambda d, w: d.submit(None, A, B), "submit"),
    "a ragged": (lambda d, w: d.matmul(RAGGED, B), "a: is no array"),
    "b ragged": (lambda d, w: d.matmul(A, RAGGED), "b: is no array"),
    "a none": (lambda d, w: d.matmul(None, B), "a: dtype object"),
    "a text": (lambda d, w: d.matmul("x", B), "a: dtype"),
    "zero point ragged": (lambda d, w: d.matmul(A, B, a_zero_point=RAGGED), "a_zero_point"),
    "zero point huge": (lambda d, w: d.matmul(A, B, b_zero_point=10**30), "b_zero_point"),
    "bias ragged": (lambda d, w: d.matmul(A, B, bias=RAGGED), "bias"),
    "bias text": (lambda d, w: d.matmul(A, B, bias="x"), "bias"),
    "transpose text": (lambda d, w: d.matmul(A, B, transpose_b="no"), "transpose_b = 'no'"),
    "transpose number": (lambda d, w: d.matmul(A, B, transpose_b=0), "transpose_b = 0"),
    "a_scale ragged": (lambda d, w: q(d, a_scale=RAGGED), "a_scale"),
    "b_scale ragged": (lambda d, w: q(d, b_scale=RAGGED), "b_scale"),
    "y_scale dict": (lambda d, w: q(d, y_scale={}), "y_scale"),
    "y_zero_point ragged": (lambda d, w: q(d, y_zero_point=RAGGED), "y_zero_point"),
    "rounding array": (lambda d, w: q(d, rounding=np.array([1, 2])), "rounding"),
    "activation huge": (lambda d, w: q(d, activation=(0, 10**400)), "activation"),
    "activation number": (lambda d, w: q(d, activation=3), "activation"),
    "prepared b_scale": (lambda d, w: d.qmatmul(A, w, **{**Q, "b_scale": "x", "b_zero_point": None}), "b_scale"),
    "prepared zero text": (lambda d, w: d.matmul(A, w, b_zero_point="x"), "b_zero_point"),
    "prepared zero fraction": (lambda d, w: d.matmul(A, w, b_zero_point=3.7), "b_zero_point"),
    "prepared zero ragged": (lambda d, w: d.matmul(A, w, b_zero_point=RAGGED), "b_zero_point"),
    "prepared bias": (lambda d, w: d.matmul(A, w, bias="x"), "bias"),
    "prepared twice": (lambda d, w: d.prepare(w), "prepared already"),
    "prepare ragged": (lambda d, w: d.prepare(RAGGED), "b: is no array"),
    "prepare bits": (lambda d, w: d.prepare(B, bits=[8]), "bits"),
    "put ragged": (lambda d, w: d.put(RAGGED), "array"),
    "put text": (lambda d, w: d.put("x"), "dtype"),
    "empty fraction": (lambda d, w: d.empty(2.5), "shape 2.5"),
    "empty none": (lambda d, w: d.empty(None), "shape None"),
    "empty text axis": (lambda d, w: d.empty((3, "x")), "shape"),
    "empty axes": (lambda d, w: d.empty((1,) * 99), "shape"),
    "empty dtype": (lambda d, w: d.empty(3, "nonsense"), "dtype 'nonsense'"),
    "empty huge": (lambda d, w: d.empty((1 << 40, 1 << 40)), "memory.bytes"),
    "empty huge 63": (lambda d, w: d.empty((1 << 31, 1 << 31)), "memory.bytes"),
    "empty nothing of huge": (lambda d, w: d.empty((0, 1 << 80)), "memory.bytes"),
    "register text": (lambda d, w: setattr(d.regs.control, "irq_enable", "x"), "irq_enable = 'x'"),
    "register none": (lambda d, w: setattr(d.regs.control, "irq_enable", None), "irq_enable = None"),
    "register fraction": (lambda d, w: setattr(d.regs.control, "irq_enable", 1.5), "irq_enable = 1.5"),
    "register block": (lambda d, w: setattr(d.regs, "control", None), "regs.control cannot be set"),
    "wait text": (lambda d, w: d.submit("matmul", A, B).wait("x"), "timeout_cycles"),
    "deepcopy": (lambda d, w: copy.deepcopy(d.put(A)), "np.array"),
    "copy": (lambda d, w: copy.copy(d.put(A)), "np.array"),
    "pickle": (lambda d, w: pickle.dumps(d.put(A)), "np.array"),
    "deepcopy weights": (lambda d, w: copy.deepcopy(w), "np.array"),
    "deepcopy device": (lambda d, w: copy.deepcopy(d), "open another"),
    "waves fraction": (lambda d, w: d.waves("x.vcd", start=1.5).__enter__(), "start = 1.5"),
    "waves text": (lambda d, w: d.waves("x.vcd", start="x").__enter__(), "start = 'x'"),
    "waves start none": (lambda d, w: d.waves("x.vcd", start=None).__enter__(), "start = None"),
    "waves stop": (lambda d, w: d.waves("x.vcd", stop=2.5).__enter__(), "stop = 2.5"),
    "waves blocks text": (lambda d, w: d.waves("x.vcd", blocks="tile0").__enter__(), "blocks = 'tile0'"),
    "waves blocks none": (lambda d, w: d.waves("x.vcd", blocks=None).__enter__(), "blocks = None"),
    "waves blocks numbers": (lambda d, w: d.waves("x.vcd", blocks=[1]).__enter__(), "blocks"),
    "waves path": (lambda d, w: d.waves(None).__enter__(), "path = None"),
    "open sim": (lambda d, w: rl.open("tiny", sim=[]), "simulators are"),
    "open sim none": (lambda d, w: rl.open("tiny", sim=None), "simulators are"),
    "open source": (lambda d, w: rl.open(5, sim="functional"), "source = 5"),
    "open overrides": (lambda d, w: rl.open("tiny", sim="functional", overrides=[1]), "overrides"),
    "open progress": (lambda d, w: rl.open("tiny", sim="python", progress="x"), "progress = 'x'"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("error")
def test_refused_by_name(device, weights, name):
    call, text = CALLS[name]
    used = device._allocator.used
    with pytest.raises(rl.Error) as caught:
        call(device, weights)
    assert text in str(caught.value)
    del caught  # its frames hold the operands
    gc.collect()
    device._jobs.drop(rl.Error("not wanted"))
    assert device._allocator.used == used
    assert (device.matmul(A, B) == 4).all()


def test_prepared_weights_take_what_they_were_prepared_with(device, weights):
    want = device.qmatmul(A, weights, **{k: v for k, v in Q.items() if not k.startswith("b_")})
    for same in ({"b_scale": 0.1}, {"b_scale": np.float32(0.1)}, {"b_scale": [0.1]}, {"b_zero_point": [3]},
                 {"bias": [0] * 5}):
        got = device.qmatmul(A, weights, **({k: v for k, v in Q.items() if not k.startswith("b_")} | same))
        np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("error")
def test_no_warnings(device):
    """Bounds beyond float32 saturate quietly, as do empty products and wrapping sums."""
    for activation in ((0, 1e300), (-1e300, 1e300), (0, np.inf), (1e-300, 1e-300)):
        device.qmatmul(A, B, **Q, activation=activation)
    device.matmul(A, B, bias=np.full(5, np.iinfo(np.int32).max, np.int32))
    device.matmul(np.zeros((0, 4), np.int8), B)
    device.matmul(np.zeros((3, 0), np.int8), np.zeros((0, 5), np.int8))


def test_strided_vectors(device):
    """One axis, any stride: as numpy."""
    rng = np.random.default_rng(11)
    m = rng.integers(-128, 128, (8, 8)).astype(np.int8)
    v = rng.integers(-128, 128, 16).astype(np.int8)
    for x in (v[::2], v[7::-1], m[:, 0], m[::-1, 3], m.T[2], np.broadcast_to(v[3:4], 8)):
        wide = x.astype(int)
        np.testing.assert_array_equal(device.matmul(x, m), wide @ m)
        np.testing.assert_array_equal(device.matmul(m, x), m @ wide)
        np.testing.assert_array_equal(device.matmul(x, m, transpose_b=True), wide @ m.T)
        assert device.matmul(x, x) == wide @ wide
        np.testing.assert_array_equal(np.asarray(device.put(x)), x)
    for x in (m[::2, ::2], m[::-1], m[:, ::-1], np.broadcast_to(m[:1], (4, 8)).T):
        other = x.astype(int)
        np.testing.assert_array_equal(device.matmul(x, x.T), other @ other.T)


def test_weights_of_another_device(device, weights):
    with rl.open("tiny", sim="functional") as other:
        with pytest.raises(rl.UnsupportedError, match="b: lives on another device; prepare the weights"):
            other.matmul(A, weights)
        with pytest.raises(rl.UnsupportedError, match="out: lives on another device; "):
            other.matmul(A, B, out=device.empty((3, 5), np.int32))


def test_cache_that_is_no_folder(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    monkeypatch.setenv("RINGLOOM_CACHE", str(path))
    with pytest.raises(rl.UnsupportedError, match="RINGLOOM_CACHE"):
        rl.open("tiny")


def test_waves_to_where_nothing_can_be_written(device, tmp_path, monkeypatch):
    """Before anything is built."""
    from ringloom.sim.verilated import binding
    simulator = object.__new__(binding.VerilatedSimulator)
    simulator._device, simulator._scopes, simulator._waves_library = 1, ["tile0"], False
    monkeypatch.setattr(simulator, "_use_waves_library", lambda: pytest.fail("built a library"))
    for path in (tmp_path / "missing" / "x.vcd", tmp_path):
        with pytest.raises(OSError):
            simulator.waves_start(path)
    assert list(tmp_path.iterdir()) == []
