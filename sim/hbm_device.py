"""The DRAM of one pseudo-channel, on its command bus."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.memory.hbm.address import AddressMap
from ringloom.hw.memory.hbm.command import ColumnOp, CommandBus, RowOp
from ringloom.hw.memory.port import StoragePort

from .hbm_data import DramData

__all__ = ["HbmDevice", "TIME_BITS", "START"]

TIME_BITS = 44      # at 1 GHz, four hours of simulated time
START = 1 << 20     # so that time 0 is long ago


class HbmDevice(wiring.Component):
    """Keeps open rows and the cycle of every command, and answers after ``cl`` and ``cwl``.

    It holds the controller to the timing set: an access that breaks a rule, or goes to a row that was opened or
    closed against a rule, reads and writes :data:`POISON`. Cost does not grow with the banks: times are kept, not
    counted down. A missed refresh costs no data here; the checker of recordings reports it.

    Parameters
    ----------
    address : AddressMap
        Timing set, and where a row, bank and column lie in the tile's memory.
    channel : int
        Which pseudo-channel this is.

    Members
    -------
    bus : In(CommandBus)
    storage : Out(StoragePort)
    now : In
        The cycle, counted from :data:`START`.
    violation : Out(1)
        The command of this cycle breaks a rule.
    """

    def __init__(self, *, address: AddressMap, channel: int) -> None:
        self._address = address
        self._channel = channel
        super().__init__({
            "bus": In(CommandBus(address)),
            "storage": Out(StoragePort(address_bits=address.beat_bits + 5)),
            "now": In(TIME_BITS), "violation": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t, bus = self._address.timing, self.bus
        banks, groups, group_bits = t.banks, t.bank_groups, self._address.group_bits
        now = self.now

        def time(name: str) -> Signal:
            return Signal(TIME_BITS, name=name)

        def since(moment: Signal, distance: int) -> Signal:
            return now >= moment + distance

        def table(name: str, width: int) -> memory.Memory:
            m.submodules[name] = made = memory.Memory(shape=width, depth=banks, init=[])
            return made

        acts = table("acts", TIME_BITS)            # last ACT of each bank
        idles = table("idles", TIME_BITS)          # from when it may be opened or refreshed again
        closes = table("closes", TIME_BITS)        # from when it may be closed
        rows = table("rows", self._address.row_bits)
        acted, rested, accessed = Signal(banks), Signal(banks), Signal(banks)   # which entries are of this run
        open_, bad, spoiled = Signal(banks), Signal(banks), Signal(banks)
        row_bank, column_bank = Signal(banks), Signal(banks)
        m.d.comb += [row_bank.eq(1 << bus.row_bank), column_bank.eq(1 << bus.column_bank)]

        # Row commands.
        write_act, write_idle, write_row = acts.write_port(), idles.write_port(), rows.write_port()
        act_time, idle_time = acts.read_port(domain="comb"), idles.read_port(domain="comb")
        close_time = closes.read_port(domain="comb")
        for port in (write_act, write_idle, write_row, act_time, idle_time, close_time):
            m.d.comb += port.addr.eq(bus.row_bank)
        last_act, last_refresh, all_idle = time("last_act"), time("last_refresh"), time("all_idle")
        all_acts, all_closes = time("all_acts"), time("all_closes")
        refreshed = Signal(banks)
        group_acts = Array(time(f"group_act_{g}") for g in range(groups))
        window, turn = Array(time(f"window_{k}") for k in range(4)), Signal(2)
        group = bus.row_bank[:group_bits]
        m.d.comb += [write_act.data.eq(now), write_row.data.eq(bus.row)]

        def mine(vector: Signal) -> Signal:
            return (vector & row_bank).any()

        was_open, rested_long, spaced, closable, row_ok = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            was_open.eq(mine(open_)),
            rested_long.eq(~was_open & (~mine(acted) | since(act_time.data, t.rc))
                           & (~mine(rested) | (now >= idle_time.data)) & (now >= all_idle)),
            spaced.eq(since(last_act, t.rrd_s) & (mine(refreshed) | since(last_refresh, t.rrefd))),
            closable.eq((~mine(acted) | since(act_time.data, t.ras)) & (~mine(accessed) | (now >= close_time.data))),
        ]
        row_taken = Signal(range(t.activate_clocks + 1))
        with m.If(bus.row_op == RowOp.ACT):
            m.d.sync += row_taken.eq(t.activate_clocks - 1)
        with m.Elif(row_taken != 0):
            m.d.sync += row_taken.eq(row_taken - 1)
        with m.Switch(bus.row_op):
            with m.Case(RowOp.ACT):
                m.d.comb += [
                    row_ok.eq(rested_long & spaced & since(group_acts[group], t.rrd_l) & since(window[turn], t.faw)),
                    write_act.en.eq(1), write_row.en.eq(1),
                ]
                m.d.sync += [
                    last_act.eq(now), group_acts[group].eq(now), window[turn].eq(now), turn.eq(turn + 1),
                    all_acts.eq(now),
                    acted.eq(acted | row_bank), open_.eq(open_ | row_bank), accessed.eq(accessed & ~row_bank),
                    bad.eq(Mux(row_ok & (row_taken == 0) & ~mine(spoiled), bad & ~row_bank, bad | row_bank)),
                    spoiled.eq(spoiled & ~row_bank),
                ]
            with m.Case(RowOp.PRE):
                m.d.comb += [row_ok.eq(was_open & closable), write_idle.en.eq(1), write_idle.data.eq(now + t.rp)]
                m.d.sync += [open_.eq(open_ & ~row_bank), rested.eq(rested | row_bank)]
                with m.If(~row_ok):
                    m.d.sync += spoiled.eq(spoiled | row_bank)
            with m.Case(RowOp.PREA):
                m.d.comb += row_ok.eq((open_ == 0) | (since(all_acts, t.ras) & (now >= all_closes)))
                m.d.sync += [open_.eq(0), all_idle.eq(now + t.rp_all)]
                with m.If(~row_ok):
                    m.d.sync += spoiled.eq(spoiled | open_)
            with m.Case(RowOp.REFPB):
                m.d.comb += [
                    row_ok.eq(rested_long & since(last_act, t.rrd_s) & since(last_refresh, t.rrefd)),
                    write_idle.en.eq(1), write_idle.data.eq(now + t.rfc_bank),
                ]
                m.d.sync += [last_refresh.eq(now), rested.eq(rested | row_bank), refreshed.eq(row_bank)]
                with m.If(~row_ok):
                    m.d.sync += spoiled.eq(spoiled | row_bank)
            with m.Case(RowOp.REFAB):
                m.d.comb += row_ok.eq((open_ == 0) & since(all_acts, t.rc) & (now >= all_idle))
                m.d.sync += all_idle.eq(now + t.rfc)
                with m.If(~row_ok):
                    m.d.sync += spoiled.eq(-1)
            with m.Default():
                m.d.comb += row_ok.eq(1)

        # Column commands.
        write_close = closes.write_port()
        opened, open_row = acts.read_port(domain="comb"), rows.read_port(domain="comb")
        closing = closes.read_port(domain="comb")
        for port in (write_close, opened, open_row, closing):
            m.d.comb += port.addr.eq(bus.column_bank)
        last_access, last_read, last_write = time("last_access"), time("last_read"), time("last_write")
        column_group = bus.column_bank[:group_bits]
        group_access = Array(time(f"group_access_{g}") for g in range(groups))
        group_write = Array(time(f"group_write_{g}") for g in range(groups))
        read, write, column_ok = Signal(), Signal(), Signal()
        close_from = Signal(TIME_BITS)
        fits, direction = Signal(), Signal()
        m.d.comb += [
            read.eq(bus.column_op == ColumnOp.RD), write.eq(bus.column_op == ColumnOp.WR),
            fits.eq((open_ & ~bad & column_bank).any() & since(opened.data, Mux(read, t.rcd_read, t.rcd_write))
                    & since(last_access, t.ccd_s) & since(group_access[column_group], t.ccd_l)),
            direction.eq(Mux(read, since(last_write, t.write_to_read_s)
                             & since(group_write[column_group], t.write_to_read_l),
                             since(last_read, t.read_to_write))),
            column_ok.eq(~(read | write) | (fits & direction)),
            close_from.eq(now + Mux(read, t.rtp, t.write_to_precharge)),
            write_close.en.eq(read | write),
            write_close.data.eq(Mux((accessed & column_bank).any() & (closing.data > close_from),
                                    closing.data, close_from)),
            self.violation.eq(~row_ok | ~column_ok | ((bus.row_op != RowOp.NONE) & (row_taken != 0))),
        ]
        with m.If(read | write):
            m.d.sync += [last_access.eq(now), group_access[column_group].eq(now), accessed.eq(accessed | column_bank)]
            with m.If(close_from > all_closes):
                m.d.sync += all_closes.eq(close_from)
        with m.If(read):
            m.d.sync += last_read.eq(now)
        with m.If(write):
            m.d.sync += [last_write.eq(now), group_write[column_group].eq(now)]

        m.submodules.data = path = DramData(timing=t, beat_bits=self._address.beat_bits)
        wiring.connect(m, path.storage, wiring.flipped(self.storage))
        m.d.comb += [
            path.read.eq(read), path.write.eq(write), path.broken.eq(~column_ok),
            path.beat.eq(self._address.encode(open_row.data, bus.column_bank, bus.column, self._channel)),
            path.write_data.eq(bus.write_data), path.strobe.eq(bus.strobe), bus.read_data.eq(path.read_data),
        ]
        return m
