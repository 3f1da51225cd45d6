"""Many tiles on the functional simulator: remote signals, collectives, faults, from raw command records."""

import numpy as np
import pytest

from ringloom.hw.isa import COMPLETION, DESCRIPTOR, LOAD, RECORD_BYTES, RING, VERSION, Code, Collective, Opcode, Status
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim.functional import FunctionalSimulator
from tests.support.bare import bare

CONFIG = bare("tiny", {"tiles": 3})
SIZE = CONFIG.memory.bytes
JOB, RECORD = 4096, 8192  # in each tile's memory


def load(**fields):
    """A LOAD that fills one block and reads no memory."""
    return LOAD.encode(version=VERSION, opcode=Opcode.LOAD, planes=1, rows=1, row_blocks=1, block_pitch=1, **fields)


def ring(operation, **fields):
    return RING.encode(**{"version": VERSION, "opcode": Opcode.RING, "operation": operation, "size": 3, "number": 1}
                       | fields)


def signal(tile):
    return {"signal0_enable": 1, "signal0_remote": 1, "signal0_tile": tile, "signal0_semaphore": 9}


WAIT = {"wait0_enable": 1, "wait0_semaphore": 9, "wait0_count": 1}


def start(simulator, streams, epochs=None):
    """Put the records of each tile into its memory, and ring all doorbells at once."""
    simulator.write(control_register("irq_enable"), 7)
    for tile, commands in streams.items():
        base = tile * SIZE
        raw = DESCRIPTOR.encode(version=VERSION, opcode=Opcode.JOB, job=tile + 1, commands=len(commands),
                                epoch=(epochs or {}).get(tile, 5), completion_address=base + RECORD)
        memory = simulator.memory(tile)
        memory[RECORD:RECORD + RECORD_BYTES] = 0
        raw += b"".join(commands)
        memory[JOB:JOB + len(raw)] = np.frombuffer(raw, np.uint8)
        simulator.write(tile_register(tile, "job_low"), base + JOB)
    simulator.write(control_register("doorbell"), sum(1 << tile for tile in streams))


def record(simulator, tile):
    return COMPLETION.decode(simulator.memory(tile)[RECORD:RECORD + RECORD_BYTES].tobytes())


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_signals_go_round(seed):
    simulator = FunctionalSimulator(CONFIG, seed=seed)
    barrier = ring(Collective.BARRIER, signal0_enable=1, signal0_semaphore=1)
    after = {"wait1_enable": 1, "wait1_semaphore": 1, "wait1_count": 1}
    start(simulator, {0: [barrier, load(**after, **signal(1)), load(**WAIT)],
                      1: [barrier, load(**after), load(**WAIT, **signal(2))],
                      2: [barrier, load(**after), load(**WAIT, **signal(0))]})
    for tile in range(3):
        assert record(simulator, tile)["status"] == Status.DONE and record(simulator, tile)["tile"] == tile
    assert simulator.read(control_register("irq_status")) == 7 and simulator.read(control_register("busy")) == 0


def test_a_signal_of_another_epoch_is_dropped():
    simulator = FunctionalSimulator(CONFIG)
    start(simulator, {0: [load(**signal(1))], 1: [load(**WAIT)]}, epochs={0: 4, 1: 5})
    assert record(simulator, 0)["status"] == Status.DONE
    assert simulator.read(control_register("busy")) == 2
    state = simulator.read(tile_register(1, "load_state"))
    assert (state & 3, state >> 8 & 31) == (1, 9)  # it waits for semaphore 9
    simulator.write(control_register("abort"), 2)
    assert record(simulator, 1)["code"] == Code.ABORT


def test_a_watchdog_for_each_tile():
    simulator = FunctionalSimulator(CONFIG)
    start(simulator, {0: [ring(Collective.BARRIER)], 1: [load(), ring(Collective.BARRIER)]})  # tile 2 never comes
    simulator.write(control_register("irq_status"), 7)
    assert simulator.read(tile_register(1, "ring_state")) == 2 | 1 << 16  # running, command 1
    assert not simulator.run(1000)
    assert simulator.run(CONFIG.control.watchdog_cycles)
    assert [record(simulator, t)["code"] for t in (0, 1)] == [Code.WATCHDOG] * 2
    assert record(simulator, 1)["command"] == 1


OWN = {"source": 65536, "destination": 131072, "bytes": 64}


@pytest.mark.parametrize("operation,fields,code", [
    (0, OWN, Code.BAD_FIELD), (6, OWN, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"size": 4}, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"size": 0}, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"first": 1, "size": 2}, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"bytes": 0}, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"bytes": 6}, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"source": 65536 + 32}, Code.BAD_FIELD),
    (Collective.BROADCAST, OWN | {"root": 3}, Code.BAD_FIELD),
    (Collective.ALL_GATHER, OWN | {"pitch": 32}, Code.BAD_FIELD),
    (Collective.REDUCE_SCATTER, OWN | {"pitch": 96}, Code.BAD_FIELD),
    (Collective.ALL_REDUCE, OWN | {"source": SIZE}, Code.MEMORY_WINDOW),      # another tile's memory
    (Collective.ALL_REDUCE, OWN | {"destination": SIZE - 32 & ~63, "bytes": 128}, Code.MEMORY_WINDOW),
])
def test_bad_collectives(operation, fields, code):
    simulator = FunctionalSimulator(CONFIG)
    start(simulator, {0: [ring(operation, **fields)]})
    assert record(simulator, 0)["code"] == code


def test_remote_memory():
    """LOAD reads another tile's memory; a command outside the window of its job is a fault wherever it lies."""
    simulator = FunctionalSimulator(CONFIG)
    start(simulator, {1: [load(row_bytes=4, address=2 * SIZE + 77)]})
    assert record(simulator, 1)["status"] == Status.DONE
    for name, value in (("window_base_low", SIZE), ("window_limit_low", 2 * SIZE)):
        simulator.write(tile_register(1, name), value)
    start(simulator, {1: [load(row_bytes=4, address=2 * SIZE + 77)]})
    assert (record(simulator, 1)["code"], record(simulator, 1)["address"]) == (Code.MEMORY_WINDOW, 2 * SIZE + 77)


def test_one_tile_has_no_ring():
    simulator = FunctionalSimulator(bare("tiny"))
    start(simulator, {0: [ring(Collective.BARRIER, size=1)]})
    assert record(simulator, 0)["code"] == Code.BAD_OPCODE
    start(simulator, {0: [load(**signal(0))]})
    assert record(simulator, 0)["code"] == Code.BAD_FIELD
