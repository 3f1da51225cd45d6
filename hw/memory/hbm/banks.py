"""What each bank may do next: open rows and every distance between commands."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .command import ColumnOp, RowOp
from .timers import DelayRing, LaneHistory, Timer

__all__ = ["BankMachines"]


class BankMachines(wiring.Component):
    """Follows the commands decided in a cycle and says which may be decided in the next.

    Every rule of the timing set is a timer here, of a bank, of a bank group or of the whole pseudo-channel; a bank
    is ready for a command when none of the timers that guard it runs. Single banks are refreshed one at a time.

    Parameters
    ----------
    address : AddressMap
        The timing set, and the widths of row and bank.

    Members
    -------
    row_op, row_bank, row : In
        The row command decided in this cycle. A command takes effect a cycle before it shows on the bus.
    column_op, column_bank : In
        The column command decided in this cycle.
    recovering : In(1)
        tRFC or tRFCpb runs since the last refresh.
    open : Out(banks)
        Banks with an open row.
    rows : Out(row_bits), an array
        The open row, or the last one that was.
    readable, writable : Out(banks)
        Banks that a RD, a WR may go to now.
    activatable, closable, refreshable : Out(banks)
        Banks that an ACT, a PRE, a REFPB may go to now.
    all_closable, all_refreshable : Out(1)
        PREA, REFAB may come now.
    row_free : Out(1)
        The row-command bus is free.
    settled : Out(banks)
        Banks whose open row could be read, were it not for the bus.
    turning_read, turning_write : Out(1)
        A RD, a WR must wait because the data bus changes its direction.
    grouped : Out(1)
        A bank group waits for tCCD_L.
    """

    def __init__(self, *, address: AddressMap) -> None:
        self._address = address
        banks = address.timing.banks
        super().__init__({
            "row_op": In(RowOp), "row_bank": In(address.bank_bits), "row": In(address.row_bits),
            "column_op": In(ColumnOp), "column_bank": In(address.bank_bits), "recovering": In(1),
            "open": Out(banks), "rows": Out(address.row_bits).array(banks),
            "readable": Out(banks), "writable": Out(banks),
            "activatable": Out(banks), "closable": Out(banks), "refreshable": Out(banks),
            "all_closable": Out(1), "all_refreshable": Out(1), "row_free": Out(1),
            "settled": Out(banks), "turning_read": Out(1), "turning_write": Out(1), "grouped": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self._address.timing
        banks, groups, group_bits = t.banks, t.bank_groups, self._address.group_bits
        every = (1 << banks) - 1

        def timer(name: str, cycles: int, start: Value) -> Value:
            m.submodules[name] = made = Timer(cycles=cycles)
            m.d.comb += made.start.eq(start)
            return made.busy

        def history(name: str, cycles: int, start: Value) -> Value:
            m.submodules[name] = made = LaneHistory(lanes=groups, cycles=cycles)
            m.d.comb += made.start.eq(start)
            return made.busy

        def ring(name: str, cycles: tuple[int, ...], spacing: int, start: Value, lane: Value,
                 lanes: int) -> list[Value]:
            m.submodules[name] = made = DelayRing(lanes=lanes, cycles=cycles, spacing=spacing)
            m.d.comb += [made.start.eq(start), made.lane.eq(lane)]
            return [made.busy[k] for k in range(len(cycles))]

        act, pre, pre_all = Signal(), Signal(), Signal()
        refresh_one, refresh_all = Signal(), Signal()
        access, read, write = Signal(), Signal(), Signal()
        row_bank = Signal(banks)
        m.d.comb += [
            act.eq(self.row_op == RowOp.ACT), pre.eq(self.row_op == RowOp.PRE), pre_all.eq(self.row_op == RowOp.PREA),
            refresh_one.eq(self.row_op == RowOp.REFPB), refresh_all.eq(self.row_op == RowOp.REFAB),
            read.eq(self.column_op == ColumnOp.RD), write.eq(self.column_op == ColumnOp.WR), access.eq(read | write),
            row_bank.eq(1 << self.row_bank),
        ]
        act_group = Mux(act, 1 << self.row_bank[:group_bits], Const(0, groups))
        access_group = Mux(access, 1 << self.column_bank[:group_bits], Const(0, groups))
        with m.Switch(self.row_op):
            with m.Case(RowOp.ACT):
                m.d.sync += self.open.eq(self.open | row_bank)
                m.d.sync += Array(self.rows[b] for b in range(banks))[self.row_bank].eq(self.row)
            with m.Case(RowOp.PRE):
                m.d.sync += self.open.eq(self.open & ~row_bank)
            with m.Case(RowOp.PREA):
                m.d.sync += self.open.eq(0)

        rcd_read, rcd_write, ras, rc = ring("acts", (t.rcd_read, t.rcd_write, t.ras, t.rc), t.rrd_s, act,
                                            self.row_bank, banks)
        (rp,) = ring("precharges", (t.rp,), 1, pre, self.row_bank, banks)
        (rtp,) = ring("reads", (t.rtp,), t.ccd_s, read, self.column_bank, banks)
        (wr,) = ring("writes", (t.write_to_precharge,), t.ccd_s, write, self.column_bank, banks)
        (wtr_l,) = ring("write_groups", (t.write_to_read_l,), t.ccd_s, write, self.column_bank[:group_bits], groups)
        wtr_s = timer("wtr_s", t.write_to_read_s, write)
        rtw = timer("rtw", t.read_to_write, read)
        ccd_s = timer("ccd_s", t.ccd_s, access)
        ccd_l = history("ccd_l", t.ccd_l, access_group)
        rrd_s = timer("rrd_s", t.rrd_s, act)
        rrd_l = history("rrd_l", t.rrd_l, act_group)
        rrefd = timer("rrefd", t.rrefd, refresh_one)
        row_taken = timer("row_taken", t.activate_clocks, act)
        all_closed = timer("rp_all", t.rp_all, pre_all)
        refreshed = Signal(banks)
        with m.If(refresh_one | refresh_all):
            m.d.sync += refreshed.eq(Mux(refresh_all, every, row_bank))

        # ACTs in the last tFAW clocks: the fifth must wait.
        window, in_window = Signal(max(1, t.faw - 1)), Signal(range(6))
        leaves = window[-1]
        m.d.sync += [window.eq((window << 1) | act), in_window.eq(in_window + act - leaves)]

        def of_groups(flags: Value) -> Value:
            return Cat(flags for _ in range(t.banks_per_group))

        idle = Signal(banks)
        m.d.comb += [
            idle.eq(Mux(all_closed, 0, ~(self.open | rp | rc | Mux(self.recovering, refreshed, Const(0, banks))))),
            self.readable.eq(Mux(ccd_s | wtr_s, 0, self.open & ~rcd_read & ~of_groups(ccd_l | wtr_l))),
            self.writable.eq(Mux(ccd_s | rtw, 0, self.open & ~rcd_write & ~of_groups(ccd_l))),
            self.activatable.eq(Mux(rrd_s | rrefd | (in_window == 4), 0, idle & ~of_groups(rrd_l))),
            self.closable.eq(self.open & ~(ras | rtp | wr)),
            self.refreshable.eq(Mux(rrd_s | rrefd, 0, idle)),
            self.all_closable.eq(self.closable == self.open),
            self.all_refreshable.eq(idle == every),
            self.row_free.eq(~row_taken),
            self.settled.eq(self.open & ~rcd_read),
            self.turning_read.eq(wtr_s | wtr_l.any()),
            self.turning_write.eq(rtw),
            self.grouped.eq(ccd_l.any()),
        ]
        return m
