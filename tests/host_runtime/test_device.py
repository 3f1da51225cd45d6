"""The public API on the functional simulator: results, refusals, jobs, faults."""

import asyncio

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringloom as rl
from ringloom.errors import ConfigError
from ringloom.hw.isa import LOAD, RECORD_BYTES, Code, Opcode
from ringloom.hw.regmap import control_register
from ringloom.sim.functional import FunctionalSimulator
from tests.support.bare import bare


@pytest.fixture(scope="module")
def device():
    with rl.open("tiny", sim="functional") as dev:
        yield dev


def works(device):
    """The device is usable and exact."""
    a, b = np.arange(-20, 20).reshape(5, 8).astype(np.int8), np.arange(-28, 28).reshape(8, 7).astype(np.int8)
    np.testing.assert_array_equal(device.matmul(a, b), a.astype(int) @ b.astype(int))
    return True


def draw(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


A, B = np.ones((3, 4), np.int8), np.ones((4, 5), np.int8)
Q = {"a_scale": 0.1, "a_zero_point": 0, "b_scale": 0.1, "b_zero_point": 0, "y_scale": 0.1, "y_zero_point": np.int8(0)}

BAD_MATMUL = [
    (A.astype(np.float32), B, {}, rl.UnsupportedError, "float32.*quantize"),
    (A.astype(np.int16), B, {}, rl.UnsupportedError, "int16"),
    (A, B.astype(np.int64), {}, rl.UnsupportedError, "b: dtype int64"),
    (A, [[1, 2], [3, 4]], {}, rl.UnsupportedError, "int64"),
    (A, B.T, {}, rl.ShapeError, "K differs, 4 and 5"),
    (A, B, {"transpose_b": True}, rl.ShapeError, "transposed.*K differs"),
    (np.int8(3), B, {}, rl.ShapeError, "scalar"),
    (np.ones((2, 3, 4), np.int8), np.ones((3, 4, 5), np.int8), {}, rl.ShapeError, "broadcast"),
    (A, B, {"a_zero_point": 128}, rl.UnsupportedError, r"a_zero_point = 128.*-128..127"),
    (A, B, {"a_zero_point": -129}, rl.UnsupportedError, "a_zero_point = -129"),
    (A.astype(np.uint8), B, {"a_zero_point": -1}, rl.UnsupportedError, "0..255"),
    (A, B, {"b_zero_point": 200}, rl.UnsupportedError, "b_zero_point = 200"),
    (A, B, {"a_zero_point": 1.0}, rl.UnsupportedError, "integer"),
    (A, B, {"a_zero_point": np.zeros(4, np.int8)}, rl.ShapeError, r"a_zero_point.*\(3,\)"),
    (A, B, {"b_zero_point": np.zeros(4, np.int8)}, rl.ShapeError, "b_zero_point"),
    (A, B, {"b_zero_point": np.zeros((5, 2), np.int8)}, rl.ShapeError, "b_zero_point"),
    (A, B, {"bias": np.zeros(5)}, rl.UnsupportedError, "bias.*int32"),
    (A, B, {"bias": np.zeros(4, np.int32)}, rl.ShapeError, r"bias.*\(5,\)"),
    (A, B, {"transpos_b": True}, rl.UnsupportedError, "did you mean 'transpose_b'"),
    (A, B, {"scale": 1}, rl.UnsupportedError, "unknown keyword 'scale'"),
    (A, B, {"out": np.zeros((3, 5), np.int32)}, rl.UnsupportedError, "DeviceArray"),
]

BAD_QMATMUL = [
    ({"a_scale": np.nan}, rl.UnsupportedError, "a_scale.*NaN"),
    ({"b_scale": 0.0}, rl.UnsupportedError, "b_scale.*zero"),
    ({"y_scale": -1.0}, rl.UnsupportedError, "y_scale.*negative"),
    ({"y_scale": np.inf}, rl.UnsupportedError, "y_scale.*infinite"),
    ({"a_scale": np.float32(1e-40)}, rl.UnsupportedError, "a_scale.*subnormal"),
    ({"a_scale": 1e30, "b_scale": 1e30, "y_scale": 1e-3}, rl.UnsupportedError, "a_scale . b_scale"),
    ({"a_scale": 1e-30, "b_scale": 1e-30}, rl.UnsupportedError, "a_scale . b_scale"),
    ({"b_scale": [0.1, 0.1, np.nan, 0.1, 0.1]}, rl.UnsupportedError, r"b_scale\[2\].*NaN"),
    ({"b_scale": [0.1, 0.1]}, rl.ShapeError, r"b_scale.*\(5,\)"),
    ({"a_scale": [0.1, 0.1, 0.1]}, rl.UnsupportedError, "a_scale.*only one scale"),
    ({"a_scale": "large"}, rl.UnsupportedError, "a_scale"),
    ({"y_scale": None}, rl.UnsupportedError, "y_scale= is needed"),
    ({"b_scale": None}, rl.UnsupportedError, "b_scale= is needed"),
    ({"y_zero_point": 3}, rl.UnsupportedError, "y_zero_point.*type decides"),
    ({"y_zero_point": np.int32(3)}, rl.UnsupportedError, "y_zero_point"),
    ({"rounding": "stochastic"}, rl.UnsupportedError, "rounding.*half_up"),
    ({"activation": "gelu"}, rl.UnsupportedError, "activation"),
    ({"activation": (3, 1)}, rl.UnsupportedError, "lo must not be above hi"),
    ({"y_zeropoint": np.int8(0)}, rl.UnsupportedError, "did you mean 'y_zero_point'"),
]


@pytest.mark.parametrize("a,b,options,kind,text", BAD_MATMUL)
def test_bad_matmul(device, a, b, options, kind, text):
    used = device._allocator.used
    with pytest.raises(kind, match=text) as caught:
        device.matmul(a, b, **options)
    assert isinstance(caught.value, rl.Error)
    assert device._allocator.used == used and not device._jobs
    assert works(device)


@pytest.mark.parametrize("options,kind,text", BAD_QMATMUL)
def test_bad_qmatmul(device, options, kind, text):
    with pytest.raises(kind, match=text):
        device.qmatmul(A, B, **(Q | options))
    assert works(device)


def test_other_refusals(device):
    for call, kind, text in [
        (lambda: rl.open("tiny", sim="fast"), rl.UnsupportedError, "simulators are"),
        (lambda: rl.open("tiny", simulator="python"), rl.UnsupportedError, "unknown keyword 'simulator'"),
        (lambda: rl.open("tiny", overrides={"tile.array.rows": 65}), rl.ConfigError, "1..64"),
        (lambda: rl.open("tinny"), rl.ConfigError, "did you mean 'tiny'"),
        (lambda: device.submit("conv", A, B), rl.UnsupportedError, "matmul, qmatmul"),
        (lambda: device.put(A, via="usb"), rl.UnsupportedError, "axi"),
        (lambda: device.empty((3, -1)), rl.ShapeError, "0 or more"),
        (lambda: device.empty(3, object), rl.UnsupportedError, "object"),
        (lambda: device.prepare(B, bits=4), rl.UnsupportedError, "bits"),
        (lambda: device.prepare(B, sparsity="2:4"), rl.UnsupportedError, "sparsity"),
        (lambda: device.prepare(B, scale=np.nan), rl.UnsupportedError, "NaN"),
        (lambda: device.prepare(B, scale=[1.0, 2.0]), rl.ShapeError, "scale"),
        (lambda: device.prepare(B, zero_point=np.zeros(3, int)), rl.ShapeError, "zero_point"),
        (lambda: device.prepare(B.astype(np.float32)), rl.UnsupportedError, "float32"),
        (lambda: device.prepare(B[0]), rl.ShapeError, "K, N"),
        (lambda: device.matmul(A, device.prepare(B), transpose_b=True), rl.UnsupportedError, "packed"),
        (lambda: device.matmul(A, device.prepare(B), b_zero_point=1), rl.UnsupportedError, "b_zero_point.*prepared"),
        (lambda: device.matmul(device.prepare(B), B), rl.UnsupportedError, "only be b"),
        (lambda: device.qmatmul(A, device.prepare(B, scale=1.0), **Q), rl.UnsupportedError, "b_scale.*prepared with"),
        (lambda: device.matmul(A, B, out=device.empty((3, 4), np.int32)), rl.ShapeError, "out"),
        (lambda: device.matmul(A, B, out=device.empty((3, 5), np.int8)), rl.UnsupportedError, "out"),
        (lambda: device.submit("matmul", A, B).wait(timeout_cycles=0), rl.UnsupportedError, "timeout_cycles"),
        (lambda: device.regs.control.dorbell, rl.UnsupportedError, "doorbell"),
        (lambda: device.regs.tile9, rl.UnsupportedError, "tile0"),
        (lambda: setattr(device.regs.control, "busy", 1), rl.UnsupportedError, "read-only"),
        (lambda: setattr(device.regs.control, "doorbell", 1 << 16), rl.UnsupportedError, "16 bits"),
    ]:
        with pytest.raises(kind, match=text):
            call()
    assert works(device)


def test_config_error_is_one_of_ours():
    assert rl.ConfigError is ConfigError and issubclass(ConfigError, rl.Error) and issubclass(ConfigError, ValueError)


def test_closed_device():
    device = rl.open("tiny", sim="functional")
    x, w = device.put(A), device.prepare(B)
    job = device.submit("matmul", A, B)
    device.close()
    device.close()
    for call in (lambda: device.matmul(A, B), lambda: device.put(A), lambda: device.prepare(B), lambda: np.asarray(x),
                 lambda: x @ w, job.result, device.reset, lambda: device.regs.control.id, lambda: device.__enter__(),
                 lambda: device.profile().__enter__()):
        with pytest.raises(rl.ClosedError):
            call()


def test_other_device():
    with rl.open("tiny", sim="functional") as one, rl.open("tiny", sim="functional") as two:
        with pytest.raises(rl.UnsupportedError, match="another device"):
            one.matmul(two.put(A), B)


@pytest.mark.parametrize("m,k,n", [(0, 4, 5), (3, 4, 0), (0, 0, 0), (3, 0, 5)])
def test_empty(device, m, k, n):
    a, b = np.zeros((m, k), np.int8), np.zeros((k, n), np.int8)
    got = device.matmul(a, b)
    assert got.shape == (m, n) and got.dtype == np.int32 and not got.any()
    assert device.matmul(np.zeros((0, 2, 3), np.int8), np.zeros((3, 4), np.int8)).shape == (0, 2, 4)


def test_vectors_as_numpy(device):
    rng = np.random.default_rng(5)
    for a_shape, b_shape in [((6,), (6, 5)), ((4, 6), (6,)), ((6,), (6,)), ((2, 4, 6), (6,)), ((6,), (3, 6, 5))]:
        a, b = draw(rng, a_shape, np.int8), draw(rng, b_shape, np.int8)
        got, want = device.matmul(a, b), np.matmul(a.astype(np.int64), b.astype(np.int64))
        assert np.shape(got) == want.shape
        np.testing.assert_array_equal(got, want)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_batches_and_zero_points(device, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    lead = data.draw(st.sampled_from([(), (1,), (2,), (2, 3), (1, 3)]))
    other = data.draw(st.sampled_from([(), *([lead] if lead else []), (1,)]))
    a_lead, b_lead = (lead, other) if data.draw(st.booleans()) else (other, lead)
    m, k, n = (data.draw(st.integers(1, 20)) for _ in range(3))
    a_type, b_type = (data.draw(st.sampled_from([np.int8, np.uint8])) for _ in range(2))
    a, b = draw(rng, (*a_lead, m, k), a_type), draw(rng, (*b_lead, k, n), b_type)
    az = draw(rng, data.draw(st.sampled_from([(), (m,), (*a_lead, m, 1)])), a_type)
    bz = draw(rng, data.draw(st.sampled_from([(), (n,), (*b_lead, 1, n)])), b_type)
    transpose = data.draw(st.booleans())
    got = device.matmul(a, np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose else b, a_zero_point=az,
                        b_zero_point=bz, transpose_b=transpose)
    rows = az.astype(np.int64)[:, None] if az.ndim == 1 else az.astype(np.int64)
    want = (a.astype(np.int64) - rows) @ (b.astype(np.int64) - bz.astype(np.int64))
    np.testing.assert_array_equal(got, want)


def ort_qmatmul(a, b, az, bz, a_scale, b_scale, y_scale, yz):
    names = ["a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point"]
    values = [a, np.float32(a_scale), a.dtype.type(az), b, np.asarray(b_scale, np.float32),
              np.full(np.shape(b_scale), bz, b.dtype), np.float32(y_scale), yz]
    types = [onnx.helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype) for v in values]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("QLinearMatMul", names, ["y"])], "q",
        [onnx.helper.make_tensor_value_info(n, t, np.shape(v)) for n, t, v in zip(names, types, values, strict=True)],
        [onnx.helper.make_tensor_value_info("y", onnx.helper.np_dtype_to_tensor_dtype(yz.dtype), None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, map(np.asarray, values), strict=True)))[0]


@pytest.mark.parametrize("per_column", [False, True])
def test_qmatmul_is_onnxruntime(device, per_column):
    """int8 weights below +-64: beyond it, an x86 without VNNI saturates inside onnxruntime."""
    rng = np.random.default_rng(8)
    for trial in range(5):
        m, k, n = rng.integers(1, 60, 3)
        a, b = draw(rng, (m, k), np.uint8), rng.integers(-63, 64, (k, n)).astype(np.int8)
        b_scale = rng.uniform(0.001, 0.1, n if per_column else ()).astype(np.float32)
        call = {"a_scale": 0.02, "b_scale": b_scale, "y_scale": float(rng.uniform(0.5, 2))}
        az, yz = int(rng.integers(0, 256)), np.uint8(rng.integers(0, 256))
        got = device.qmatmul(a, b, a_zero_point=az, b_zero_point=0, y_zero_point=yz, **call)
        np.testing.assert_array_equal(got, ort_qmatmul(a, b, az, 0, yz=yz, **call), err_msg=f"trial {trial}")


def test_saturation_and_ties(device):
    """Cases 3 and 4 at the API: rounding and saturation with sums of one product."""
    a = np.array([[-3], [-1], [1], [3], [5], [127], [-128]], np.int8)
    b = np.array([[1]], np.int8)
    answers = {"f32": [-2, 0, 0, 2, 2, 64, -64], "half_up": [-1, 0, 1, 2, 3, 64, -64],
               "half_away": [-2, -1, 1, 2, 3, 64, -64]}
    for rounding, want in answers.items():
        got = device.qmatmul(a, b, a_scale=0.5, b_scale=1.0, y_scale=1.0, y_zero_point=np.int8(0), rounding=rounding)
        np.testing.assert_array_equal(got[:, 0], want)
    bias = np.array([np.iinfo(np.int32).max], np.int32)
    for value, want in ((bias, 127), (-bias - 1, -128)):
        got = device.qmatmul(np.zeros((1, 1), np.int8), b, a_scale=1.0, b_scale=1.0, y_scale=1.0, bias=value,
                             y_zero_point=np.int8(9))
        assert got.tolist() == [[want]]


def test_jobs(device):
    x, w = device.put(A), device.prepare(B)
    first, second = device.submit("matmul", x, w), device.submit("matmul", A, w)
    assert (first.status, second.status, first.done) == ("queued", "queued", False)
    assert (second.result() == 4).all() and first.done  # in order
    assert (np.asarray(first.result()) == 4).all()

    async def both():
        return await device.submit("matmul", A, B)

    assert (asyncio.run(both()) == 4).all()
    out = device.empty((3, 5), np.int32)
    later = device.submit("matmul", A, B, out=out)
    assert (np.asarray(out) == 4).all() and later.done  # looking at it waits for it


def test_operands_are_taken_at_submit(device):
    a = A.copy()
    job = device.submit("matmul", a, B)
    a[:] = 9
    assert (job.result() == 4).all()


class Broken(FunctionalSimulator):
    """Spoils one command of the next job, just before it starts."""

    spoil: dict | None = None
    index = 0

    def write(self, address, value):
        if self.spoil is not None and address == control_register("doorbell"):
            registers = self._tiles[0].registers
            at = (registers["job_high"] << 32 | registers["job_low"]) + RECORD_BYTES * (1 + self.index)
            raw = self._memory[at:at + RECORD_BYTES].tobytes()
            if self.spoil:
                changed = LOAD.encode(**(LOAD.decode(raw) | self.spoil))
            else:
                changed = raw[:1] + b"\x63" + raw[2:]
            self._memory[at:at + RECORD_BYTES] = np.frombuffer(changed, np.uint8)
            self.spoil = None
        super().write(address, value)


@pytest.fixture
def broken():
    config = bare("tiny")
    with rl.Device(config, Broken(config)) as dev:
        yield dev


@pytest.mark.parametrize("spoil,code", [
    ({}, Code.BAD_OPCODE), ({"address": 1 << 40}, Code.MEMORY_WINDOW),
    ({"destination": 1 << 30}, Code.SCRATCHPAD_RANGE), ({"rows": 0}, Code.BAD_FIELD),
    ({"version": 9}, Code.BAD_VERSION),
])
def test_fault_and_after(broken, spoil, code):
    broken.simulator.spoil = spoil
    behind = broken.submit("matmul", A, B), broken.submit("matmul", A, B)
    with pytest.raises(rl.DeviceFault, match=code.name) as caught:
        behind[0].result()
    assert caught.value.code == code.name and caught.value.command == 0
    assert (behind[1].result() == 4).all()
    with pytest.raises(rl.DeviceFault):
        behind[0].result()
    assert works(broken)


def test_time_out_names_engine_and_semaphore(broken):
    broken.simulator.spoil = {"wait0_enable": 1, "wait0_semaphore": 3, "wait0_count": 2}
    waits = "LOAD waits at command 0 for semaphore 3 .STORE ended, for MATMUL.*holds 0"
    with pytest.raises(rl.TimeoutError, match=waits) as e:
        broken.submit("matmul", A, B).wait(timeout_cycles=500)
    assert len(e.value.waiting) == 3 and "aborted" in str(e.value)
    assert works(broken)
    broken.simulator.spoil = {"wait0_enable": 1, "wait0_semaphore": 9, "wait0_count": 2}
    with pytest.raises(rl.TimeoutError, match="WATCHDOG"):
        broken.submit("matmul", A, B).wait(timeout_cycles=10**9)
    assert works(broken)


def test_reset(device):
    x = device.put(A)
    job = device.submit("matmul", x, B)
    device.reset()
    with pytest.raises(rl.DeviceFault, match="reset"):
        job.result()
    assert (np.asarray(x @ B) == 4).all()


def test_registers(device):
    assert device.regs.control.tiles == device.config.tiles and "doorbell" in dir(device.regs.control)
    device.regs.tile0.job_low = 0x1240
    assert device.regs.tile0.job_low == 0x1240
    assert works(device)


def test_profile(device):
    with device.profile() as p:
        device.matmul(A, B)
        device.matmul(A, B)
        with pytest.raises(rl.UnsupportedError, match="with"):
            p.cycles  # noqa: B018
    assert p.jobs == 2 and p.macs == 2 * 3 * 4 * 5
    assert p.counters["tile0.commands.store"] >= 2
    assert p.counters["tile0.load.bytes"] == 2 * (12 + 20) and p.counters["tile0.store.bytes"] == 2 * 60
    tree = p.to_dict()
    assert tree["bottleneck"] == "idle" and tree["macs"] == p.macs and "utilization" in p.summary()


def test_waves_need_signals(device, tmp_path):
    with pytest.raises(rl.UnsupportedError, match="no signals"):
        with device.waves(tmp_path / "x.vcd"):
            pass
    with pytest.raises(rl.UnsupportedError, match="VCD"):
        with device.waves(tmp_path / "x.fst"):
            pass


def test_opcode_is_named_in_a_fault(broken):
    broken.simulator.spoil = {"rows": 0}
    with pytest.raises(rl.DeviceFault, match=Opcode.LOAD.name):
        broken.matmul(A, B)
