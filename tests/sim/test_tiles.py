"""Several tiles: remote memory, signals, windows, aborts, the host on all memory, and the same cycles everywhere."""

import random

import numpy as np
import pytest

from ringloom.hw import isa
from ringloom.hw.counters import CAUSES, COUNTERS
from ringloom.hw.export import export_verilog
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim import BusError
from ringloom.sim.amaranth_sim import PythonSimulator
from ringloom.sim.verilated import VerilatedSimulator
from tests.support.bare import bare
from tests.support.control import command
from tests.support.many import COMPLETION, SOURCE, TARGET, Copy, Many, apply, base, copy_job, random_copies
from tests.support.simulators import quiet

pytestmark = pytest.mark.xdist_group("tiles")  # one worker builds the models, for all

# Two ports a tile, answers in any order, writes late: what the port contract allows.
ROUGH = {"tiles": 2, "memory.bytes": 65536, "ideal.bytes_per_cycle": 64, "ideal.jitter": 20, "ideal.reorder": True,
         "ideal.write_delay": 30, "ideal.seed": 7}
CONFIG = bare("tiny", ROUGH)
DONE, FAULT, ABORTED = isa.Status.DONE, isa.Status.FAULT, isa.Status.ABORTED
BOTH = 0b11


@pytest.fixture(scope="module")
def built():
    simulator = VerilatedSimulator(CONFIG, quiet)
    yield simulator
    simulator.close()


@pytest.fixture
def tiles(built):
    built.reset()
    many = Many(built)
    many.fill(5)
    return many


def run_copies(many: Many, jobs: list[list[Copy]]) -> None:
    """Run a job of copies on every tile at once; memory must be as numpy's, guard bytes included."""
    config = many.config
    every = (1 << config.tiles) - 1
    for t, copies in enumerate(jobs):
        many.place(t, copy_job(config, copies, t))
    expected = many.pool()
    apply(config, expected, jobs)
    many.start(every)
    records = many.finish(every)
    assert all((record["status"], record["tile"]) == (DONE, t) for t, record in records.items()), records
    pool = many.pool()
    for t in range(config.tiles):
        completion = base(config, t) + COMPLETION
        expected[completion:completion + 64] = pool[completion:completion + 64]
    assert np.array_equal(pool, expected), np.nonzero(pool != expected)[0][:10]


@pytest.mark.parametrize("seed", range(6))
def test_any_tile_reads_and_writes_any_memory(tiles, seed):
    print("seed", seed)
    tiles.fill(seed)
    run_copies(tiles, random_copies(CONFIG, seed, 20))


@pytest.mark.parametrize("target", [0, 1])
def test_all_tiles_write_to_one(tiles, target):
    run_copies(tiles, random_copies(CONFIG, target, 25, target_tile=target))


@pytest.mark.parametrize("overrides", [
    {"tiles": 3, "ideal.jitter": 11, "ring.link_stages": 0},
    {"tiles": 2, "memory.kind": "hbm", "memory.timing": "tiny"},
], ids=["three, short links", "two, DRAM"])
def test_other_numbers_of_tiles(overrides):
    config = bare("tiny", {"memory.bytes": 65536, **overrides})
    many = Many(PythonSimulator(config, quiet))
    many.fill(2)
    run_copies(many, random_copies(config, 2, 1))
    last = base(config, config.tiles - 1) + SOURCE
    assert many.simulator.axi_read(last + 7, 90) == many.pool()[last + 7:last + 97].tobytes()


def trace(simulator) -> tuple:
    """Ends, records, counters and bytes of the same work, from reset."""
    simulator.reset()
    start = simulator.cycle
    many = Many(simulator)
    many.fill(3)
    run_copies(many, random_copies(CONFIG, 3, 3))
    simulator.axi_write(base(CONFIG, 1) - 40, bytes(range(100)))  # across the border of two tiles
    assert simulator.axi_read(base(CONFIG, 1) - 50, 120) == many.pool()[65486:65606].tobytes()
    simulator.write(control_register("snapshot"), BOTH)
    counters = [simulator.read(tile_register(t, f"counter_{c.name.replace('.', '_')}_low"))
                for t in range(2) for c in COUNTERS]
    return (simulator.cycle - start, [end - start for end in many.ends], [many.record(t) for t in range(2)], counters,
            many.pool().tobytes())


def test_simulators_agree_in_every_cycle(tiles):
    """The whole device in Amaranth's simulator, and its tiles as models of their own."""
    assert trace(tiles.simulator) == trace(PythonSimulator(CONFIG, quiet))


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_the_exported_verilog_is_the_same_device(tiles):
    """One model of the whole exported Verilog, which takes minutes to compile."""
    # Under other names the builder does not see that there are parts.
    whole = export_verilog(CONFIG).replace("ringloom_tile", "ringloom_one").replace("ringloom_shell", "ringloom_rest")
    assert trace(VerilatedSimulator(CONFIG, quiet, verilog=whole)) == trace(tiles.simulator)


def remote(tile: int, semaphore: int) -> dict[str, int]:
    """Fields of a command that signals a semaphore of another tile, as its second signal."""
    return {"signal1_enable": 1, "signal1_remote": 1, "signal1_tile": tile, "signal1_semaphore": semaphore}


def relay(config, *, rounds: int, own: int, context: int, epochs: tuple[int, int]) -> list[bytes]:
    """Two jobs that hand a row to and fro: each adds its signal when the row is in the other's memory."""
    width = 4 * config.tile.array.columns
    jobs = []
    for t in range(2):
        records = []
        for number in range(rounds):
            here, there = base(config, t) + TARGET, base(config, 1 - t) + TARGET
            waits = [] if t == 0 and number == 0 else [(own, 1)]
            records += [
                command("load", waits=waits, signals=[0], target=isa.Target.ACCUMULATOR,
                        address=here + width * number, rows=1, planes=1, row_bytes=width, row_blocks=1, block_pitch=1,
                        row_pitch=1),
                command("store", waits=[(0, 1)], rounding=isa.Rounding.RAW, rows=1, row_stride=width,
                        columns=config.tile.array.columns, address=there + width * (number + (t == 1)),
                        **remote(1 - t, own)),
            ]
        jobs.append(copy_job(config, [], t, records=records, context=context, epoch=epochs[t], watchdog_cycles=4000))
    return jobs


def test_signals_order_work_of_two_tiles(tiles):
    """A row goes ten times to and fro, and nobody reads it before it is there."""
    width = 4 * CONFIG.tile.array.columns
    row = tiles.simulator.memory(0)[TARGET:TARGET + width].copy()
    for t, raw in enumerate(relay(CONFIG, rounds=10, own=9, context=6, epochs=(2, 2))):
        tiles.place(t, raw)
    tiles.start(BOTH)
    # Tile 0's tenth command signals tile 1, whose tenth signals a job that has ended: dropped.
    assert all(record["status"] == DONE for record in tiles.finish(BOTH).values())
    for t in range(2):
        rows = tiles.simulator.memory(t)[TARGET:TARGET + 10 * width].reshape(10, width)
        assert (rows == row).all()


@pytest.mark.parametrize("context, epochs", [(6, (2, 3)), (0, (1, 0))])
def test_signals_of_another_epoch_are_dropped(tiles, context, epochs):
    for t, raw in enumerate(relay(CONFIG, rounds=3, own=9, context=context, epochs=epochs)):
        tiles.place(t, raw)
    before = tiles.simulator.memory(1)[TARGET + 1000:].copy()
    tiles.start(BOTH)
    records = tiles.finish(BOTH)
    assert [(records[t]["status"], records[t]["code"]) for t in range(2)] == [(FAULT, isa.Code.WATCHDOG)] * 2
    assert tiles.simulator.read(tile_register(1, "semaphore9")) == 0
    assert np.array_equal(tiles.simulator.memory(1)[TARGET + 1000:], before)
    run_copies(tiles, random_copies(CONFIG, 1, 3))


def test_remote_signal_to_the_own_tile_is_a_local_one(tiles):
    width = 4 * CONFIG.tile.array.columns
    load = command("load", target=isa.Target.ACCUMULATOR, address=base(CONFIG, 1) + SOURCE, rows=1, planes=1,
                   row_bytes=width, row_blocks=1, block_pitch=1, row_pitch=1, **remote(0, 4))
    store = command("store", waits=[(4, 1)], rounding=isa.Rounding.RAW, rows=1, row_stride=width,
                    columns=CONFIG.tile.array.columns, address=TARGET)
    tiles.place(0, copy_job(CONFIG, [], 0, records=[load, store]))
    tiles.start(1)
    assert tiles.finish(1)[0]["status"] == DONE
    assert np.array_equal(tiles.simulator.memory(0)[TARGET:TARGET + width],
                          tiles.simulator.memory(1)[SOURCE:SOURCE + width])


@pytest.mark.parametrize("fields", [remote(2, 1), remote(255, 1), {"signal0_tile": 1}])
def test_signals_to_no_tile_are_refused(tiles, fields):
    bad = command("load", target=isa.Target.ACCUMULATOR, address=SOURCE, rows=1, planes=1, row_bytes=16, row_blocks=1,
                  block_pitch=1, row_pitch=1, **fields)
    tiles.place(0, copy_job(CONFIG, [], 0, records=[bad]))
    tiles.start(1)
    record = tiles.finish(1)[0]
    assert (record["status"], record["code"], record["command"]) == (FAULT, isa.Code.BAD_FIELD, 0)


@pytest.mark.parametrize("side", ["source", "target"])
def test_windows_hold_in_other_memories_too(tiles, side):
    """A window that ends inside tile 1's memory: up to there all is done, behind it nothing is touched."""
    width = 4 * CONFIG.tile.array.columns
    edge = base(CONFIG, 1) + TARGET + 4 * width
    inside = Copy(SOURCE, edge - 4 * width, 4, width, width)
    outside = (Copy(edge - width, TARGET, 2, width, width) if side == "source"
               else Copy(SOURCE, edge - width, 2, width, width))
    tiles.place(0, copy_job(CONFIG, [inside, outside], 0))
    for name, value in (("base", 0), ("limit", edge)):
        tiles.simulator.write(tile_register(0, f"window_{name}_low"), value)
    before = tiles.pool()
    tiles.start(1)
    record = tiles.finish(1)[0]
    assert (record["status"], record["code"]) == (FAULT, isa.Code.MEMORY_WINDOW)
    assert record["command"] == (2 if side == "source" else 3)
    assert record["address"] == edge
    pool = tiles.pool()
    assert np.array_equal(pool[edge:], before[edge:])
    # Commands of one engine end in order; a LOAD at fault stops a STORE that still writes.
    got, want = pool[edge - 4 * width:edge - width], before[SOURCE:SOURCE + 3 * width]
    kept = got == before[edge - 4 * width:edge - width]
    assert ((got == want) | (kept & (side == "source"))).all()


@pytest.mark.parametrize("after", [40, 90, 200])
def test_abort_drains_remote_requests(tiles, after):
    jobs = random_copies(CONFIG, after, 20)
    for t in range(2):
        tiles.place(t, copy_job(CONFIG, jobs[t], t))
    tiles.start(BOTH)
    tiles.simulator.run(after)
    tiles.simulator.write(control_register("abort"), BOTH)
    records = tiles.finish(BOTH)
    for t in range(2):
        assert tiles.simulator.read(tile_register(t, "status")) >> 8 & 0xFF == ABORTED
        # one that ends before its descriptor has come knows no place for a record
        assert records[t]["status"] == ABORTED or (after == 40 and records[t]["status"] == isa.Status.PENDING)
    tiles.fill(after)
    run_copies(tiles, random_copies(CONFIG, after + 1, 5))


def test_host_reaches_all_memory_while_tiles_run(tiles):
    rng = random.Random(11)
    jobs = random_copies(CONFIG, 11, 25)
    for t in range(2):
        tiles.place(t, copy_job(CONFIG, jobs[t], t))
    expected = tiles.pool()
    apply(CONFIG, expected, jobs)
    tiles.start(BOTH)
    for number in range(12):  # between the completion records and the sources nobody else writes
        address = base(CONFIG, number % 2) + COMPLETION + 64 + rng.randrange(6000)
        data = rng.randbytes(rng.choice((1, 31, 33, 400)))
        tiles.simulator.axi_write(address, data)
        expected[address:address + len(data)] = np.frombuffer(data, np.uint8)
        start = rng.randrange(2 * 65536 - 600)
        if SOURCE <= start % 65536 < TARGET - 600:
            assert tiles.simulator.axi_read(start, 500) == expected[start:start + 500].tobytes()
        assert tiles.simulator.axi_read(address, len(data)) == data
    tiles.finish(BOTH)
    pool = tiles.pool()
    for t in range(2):
        completion = base(CONFIG, t) + COMPLETION
        expected[completion:completion + 64] = pool[completion:completion + 64]
    assert np.array_equal(pool, expected)


def test_each_tile_has_its_registers(tiles):
    simulator = tiles.simulator
    for t in range(2):
        simulator.write(tile_register(t, "job_low"), 64 * (t + 1))
        simulator.write(tile_register(t, "window_limit_low"), 4096 * (t + 1))
    assert [simulator.read(tile_register(t, "job_low")) for t in range(2)] == [64, 128]
    assert [simulator.read(tile_register(t, "window_limit_low")) for t in range(2)] == [4096, 8192]
    assert simulator.read(control_register("tiles")) == 2
    with pytest.raises(BusError):
        simulator.read(tile_register(2, "status"))
    with pytest.raises(BusError):
        simulator.write(tile_register(1, "status"), 0)
    with pytest.raises(BusError):
        simulator.axi_read(2 * 65536, 32)


def test_counters_tell_memory_from_ring(tiles):
    """Waits for the own memory are the memory's, waits for another's are the ring's; the causes add up."""
    width = 4 * CONFIG.tile.array.columns
    seen = {}
    for name, source in (("own", SOURCE), ("other", base(CONFIG, 1) + SOURCE)):
        copies = [Copy(source, base(CONFIG, source // 65536) + TARGET, 30, width, width)] * 4
        tiles.simulator.reset()
        tiles.place(0, copy_job(CONFIG, copies, 0))
        tiles.start(1)
        tiles.finish(1)
        tiles.simulator.write(control_register("snapshot"), BOTH)
        seen[name] = [{c.name: tiles.simulator.read(tile_register(t, f"counter_{c.name.replace('.', '_')}_low"))
                       for c in COUNTERS} for t in range(2)]
        mine = seen[name][0]
        assert sum(mine[cause] for cause in CAUSES) == mine["cycles"] > 0
    own, other = seen["own"], seen["other"]
    assert own[0]["idle.ring"] == own[0]["ring.flits_clockwise"] == own[1]["memory.reads"] == 0
    assert own[0]["idle.memory"] > own[0]["cycles"] // 2
    assert other[0]["idle.memory"] == 0 and other[0]["idle.ring"] > other[0]["cycles"] // 2
    rows = 4 * 30  # of half a beat; LOAD and STORE ask for each by itself
    assert width == 16 and other[1]["memory.reads"] == rows == other[1]["memory.writes"]
    for t in range(2):  # every beat is asked for by its requester, and answered by its server
        assert other[t]["ring.flits_clockwise"] + other[t]["ring.flits_counterclockwise"] == 2 * rows
    assert other[0]["memory.writes"] == 2  # the completion record


@pytest.mark.parametrize("number", [1, 65535])
def test_collectives_beside_copies(tiles, number):
    """A barrier and an all-reduce while both tiles copy to and fro; a command of another engine waits for the sum."""
    width, words, place = 4 * CONFIG.tile.array.columns, 640, TARGET - 2560
    vectors = [np.random.default_rng(t).integers(-2**31, 2**31, words).astype(np.int32) for t in range(2)]
    total = vectors[0].astype(np.int64) + vectors[1]
    jobs = random_copies(CONFIG, 21, 8)
    jobs = [[one for one in copies if one.source % 65536 + one.rows * one.source_stride < place] for copies in jobs]
    for t in range(2):
        own = base(CONFIG, t)
        tiles.simulator.memory(t)[place:place + 4 * words] = vectors[t].view(np.uint8)
        group = {"first": 0, "size": 2}
        records = [
            command("ring", operation=isa.Collective.BARRIER, number=number, **group),
            command("ring", signals=[20], operation=isa.Collective.ALL_REDUCE, number=number + 1 & 0xFFFF, **group,
                    source=own + place, destination=own + place, bytes=4 * words),
        ]
        # It overwrites what the last copies have stored: copy_job leaves a signal of each of the last two.
        ready = command("load", waits=[(20, 1), (1, min(2, len(jobs[t])))], signals=[21], rows=1, planes=1,
                        target=isa.Target.ACCUMULATOR, address=base(CONFIG, 1 - t) + SOURCE, row_bytes=width,
                        row_blocks=1, block_pitch=1, row_pitch=1)
        tiles.place(t, copy_job(CONFIG, jobs[t], t, records=records, tail=[ready]))
    expected = tiles.pool()
    apply(CONFIG, expected, jobs)
    for t in range(2):
        start = base(CONFIG, t) + place
        expected[start:start + 4 * words] = total.astype(np.int32).view(np.uint8)
    tiles.start(BOTH)
    records = tiles.finish(BOTH)
    assert all(record["status"] == DONE for record in records.values()), records
    pool = tiles.pool()
    for t in range(2):
        completion = base(CONFIG, t) + COMPLETION
        expected[completion:completion + 64] = pool[completion:completion + 64]
    assert np.array_equal(pool, expected)


def test_threads_change_nothing(monkeypatch):
    traces = []
    for threads in ("1", "2"):
        monkeypatch.setenv("RINGLOOM_THREADS", threads)
        many = Many(VerilatedSimulator(CONFIG, quiet))
        many.fill(9)
        run_copies(many, random_copies(CONFIG, 9, 10))
        traces.append((many.ends, many.pool().tobytes()))
        many.simulator.close()
    assert traces[0] == traces[1]
    monkeypatch.setenv("RINGLOOM_THREADS", "0")
    with pytest.raises(ValueError, match="at least 1"):
        VerilatedSimulator(CONFIG, quiet)
