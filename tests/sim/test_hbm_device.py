"""The DRAM on its command bus: data at their time, and poison where a rule is broken."""

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.hbm.address import AddressMap
from ringloom.hw.memory.hbm.command import ColumnOp, RowOp
from ringloom.hw.memory.hbm.timing import load_timing
from ringloom.sim.hbm_data import POISON
from ringloom.sim.hbm_device import START, HbmDevice
from tests.support.memory import storage_process

T = load_timing("tiny")
ADDRESS = AddressMap(timing=T, beats=1 << 9)
POISONED = int.from_bytes(bytes([POISON]) * 32, "little")
ROW = {"ACT": RowOp.ACT, "PRE": RowOp.PRE, "PREA": RowOp.PREA, "REFPB": RowOp.REFPB, "REFAB": RowOp.REFAB}
COLUMN = {"RD": ColumnOp.RD, "WR": ColumnOp.WR}


def run(script: list[tuple[int, str, int, int]], data: int = 0x1234) -> tuple[list[int], list[int], bytearray]:
    """Play (cycle, op, bank, row or column); what each RD read, and the cycles with a violation."""
    device = HbmDevice(address=ADDRESS, channel=0)
    contents = bytearray(range(256)) * 64
    reads, violations = [], []
    cycles = script[-1][0] + T.cl + T.burst_clocks + 6
    bus = device.bus

    async def body(ctx):
        for cycle in range(cycles):
            row, column = ("NONE", 0, 0), ("NONE", 0, 0)
            for at, op, bank, place in script:
                if at == cycle and op in ROW:
                    row = (op, bank, place)
                elif at == cycle:
                    column = (op, bank, place)
            ctx.set(device.now, START + cycle)
            ctx.set(bus.row_op, ROW.get(row[0], RowOp.NONE))
            ctx.set(bus.row_bank, row[1])
            ctx.set(bus.row, row[2])
            ctx.set(bus.column_op, COLUMN.get(column[0], ColumnOp.NONE))
            ctx.set(bus.column_bank, column[1])
            ctx.set(bus.column, column[2])
            on_bus = any(op == "WR" and at + T.cwl + T.burst_clocks - 1 == cycle for at, op, _, _ in script)
            ctx.set(bus.write_data, data if on_bus else 0xDEAD)
            ctx.set(bus.strobe, 0xFFFFFFFF)
            if any(op == "RD" and at + T.cl + T.burst_clocks - 1 == cycle for at, op, _, _ in script):
                reads.append(ctx.get(bus.read_data))
            if ctx.get(device.violation):
                violations.append(cycle)
            await ctx.tick()

    async def storage(ctx):
        await storage_process(ctx, device.storage, contents)

    simulator = Simulator(device)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.add_process(storage)
    simulator.run()
    return reads, violations, contents


def beat_of(row: int, bank: int, column: int) -> int:
    return next(b for b in range(ADDRESS.beats) if ADDRESS.locate(b) == (row, bank, column))


def test_a_read_gives_the_row_that_is_open():
    reads, violations, contents = run([(5, "ACT", 1, 3), (5 + T.rcd_read, "RD", 1, 2)])
    start = 32 * beat_of(3, 1, 2)
    assert reads == [int.from_bytes(contents[start:start + 32], "little")] and not violations


def test_a_write_reaches_storage_and_a_later_read():
    write = 5 + T.rcd_write
    reads, violations, contents = run([(5, "ACT", 2, 1), (write, "WR", 2, 4),
                                       (write + T.write_to_read_l, "RD", 2, 4)], data=0xABCDEF)
    start = 32 * beat_of(1, 2, 4)
    assert int.from_bytes(contents[start:start + 32], "little") == 0xABCDEF
    assert reads == [0xABCDEF] and not violations


def test_bursts_back_to_back_and_banks_at_once():
    script = [(5, "ACT", 0, 1), (8, "ACT", 1, 2), *((20 + 2 * k, "RD", k % 2, k) for k in range(8))]
    reads, violations, contents = run(script)
    expected = [32 * beat_of(1 + k % 2, k % 2, k) for k in range(8)]
    assert reads == [int.from_bytes(contents[s:s + 32], "little") for s in expected] and not violations


A = 30   # cycle of the first ACT
BROKEN = {
    "tRCDRD": [(A, "ACT", 0, 1), (A + T.rcd_read - 1, "RD", 0, 0)],
    "closed": [(A, "RD", 0, 0)],
    "tCCD_S": [(A, "ACT", 0, 1), (A + 3, "ACT", 1, 1), (A + 20, "RD", 0, 0), (A + 21, "RD", 1, 0)],
    "tCCD_L": [(A, "ACT", 0, 1), (A + 5, "ACT", 2, 1), (A + 20, "RD", 0, 0), (A + 22, "RD", 2, 0)],
    "tWTR_S": [(A, "ACT", 0, 1), (A + 3, "ACT", 1, 1), (A + 20, "WR", 0, 0), (A + 19 + T.write_to_read_s, "RD", 1, 0)],
    "tWTR_L": [(A, "ACT", 0, 1), (A + 20, "WR", 0, 0), (A + 19 + T.write_to_read_l, "RD", 0, 0)],
    "tRP": [(A, "ACT", 0, 1), (A + 20, "PRE", 0, 0), (A + 19 + T.rp, "ACT", 0, 1), (A + 50, "RD", 0, 0)],
    "tRC": [(A, "ACT", 0, 1), (A + T.ras, "PRE", 0, 0), (A + T.rc - 1, "ACT", 0, 1), (A + 50, "RD", 0, 0)],
    "tRAS": [(A, "ACT", 0, 1), (A + T.ras - 1, "PRE", 0, 0), (A + 30, "ACT", 0, 1), (A + 50, "RD", 0, 0)],
    "tRTP": [(A, "ACT", 0, 1), (A + 20, "RD", 0, 0), (A + 19 + T.rtp, "PRE", 0, 0), (A + 40, "ACT", 0, 1),
             (A + 60, "RD", 0, 0)],
    "tWR": [(A, "ACT", 0, 1), (A + 20, "WR", 0, 0), (A + 19 + T.write_to_precharge, "PRE", 0, 0), (A + 50, "ACT", 0, 1),
            (A + 60, "RD", 0, 0)],
    "tRRD_S": [(A, "ACT", 0, 1), (A + T.rrd_s - 1, "ACT", 1, 1), (A + 50, "RD", 1, 0)],
    "tRRD_L": [(A, "ACT", 0, 1), (A + T.rrd_l - 1, "ACT", 2, 1), (A + 50, "RD", 2, 0)],
    "tFAW": [(A, "ACT", 0, 1), (A + 3, "ACT", 1, 1), (A + 6, "ACT", 2, 1), (A + 9, "PRE", 0, 0), (A + 11, "ACT", 3, 1),
             (A + 15, "ACT", 0, 1), (A + 50, "RD", 0, 0)],
    "tRFC": [(A, "REFAB", 0, 0), (A + T.rfc - 1, "ACT", 0, 1), (A + 60, "RD", 0, 0)],
    "tRFCpb": [(A, "REFPB", 0, 0), (A + T.rfc_bank - 1, "ACT", 0, 1), (A + 60, "RD", 0, 0)],
    "tRREFD": [(A, "REFPB", 1, 0), (A + T.rrefd - 1, "ACT", 0, 1), (A + 60, "RD", 0, 0)],
    "row bus": [(A, "REFPB", 1, 0), (A + 4, "ACT", 0, 1), (A + 5, "ACT", 2, 1), (A + 60, "RD", 2, 0)],
    "refresh of an open bank": [(A, "ACT", 0, 1), (A + 20, "REFPB", 0, 0), (A + 40, "PRE", 0, 0), (A + 60, "ACT", 0, 1),
                                (A + 70, "RD", 0, 0)],
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_poisons_the_data(rule):
    reads, violations, _ = run(BROKEN[rule])
    assert violations and reads[-1] == POISONED


@pytest.mark.parametrize("script", [
    [(A, "ACT", 0, 1), (A + T.rcd_write - 1, "WR", 0, 0)],
    [(A, "ACT", 0, 1), (A + 3, "ACT", 1, 1), (A + 20, "RD", 0, 0), (A + 19 + T.read_to_write, "WR", 1, 0)],
])
def test_a_write_against_the_rules_writes_poison(script):
    _, violations, contents = run(script)
    start = 32 * beat_of(1, script[-1][2], 0)
    assert violations and int.from_bytes(contents[start:start + 32], "little") == POISONED
