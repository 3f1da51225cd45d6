"""Runs jobs: fetches their commands, gives them to the engines in order, and tells how each job ended."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..isa import (
    COMPLETION,
    DESCRIPTOR,
    HEADER,
    LOAD,
    MATMUL,
    RECORD_BYTES,
    RING,
    STORE,
    VERSION,
    Code,
    Opcode,
    Status,
)
from ..memory.port import BEAT_BITS, BEAT_SHIFT, LEAF_TAG_BITS, MemoryPort
from ..regmap import ENGINE_STATES
from ..ring.requester import notice_layout
from ..shaped import ShapedEnum
from .dispatch import INDEX_BITS, IssueStage
from .engine import EnginePort, JobState
from .fetcher import SLOT_BEATS, Fetcher
from .notices import NoticeUnit
from .semaphores import Semaphores

__all__ = ["CommandProcessor", "TileControl", "ENGINES", "engines"]

ENGINES = ("load", "matmul", "store")
"""Engines by their number; where two faults come in one cycle, the lower number is reported."""
_RECORDS = {"load": (Opcode.LOAD, LOAD), "matmul": (Opcode.MATMUL, MATMUL), "store": (Opcode.STORE, STORE),
            "ring": (Opcode.RING, RING)}
_RECORD_SHIFT = RECORD_BYTES.bit_length() - 1
_COMPLETION_TAG = SLOT_BEATS  # the fetcher uses the tags below


def engines(config: DeviceConfig) -> tuple[str, ...]:
    """Engines of a tile of this device: with several tiles one for the ring."""
    return ENGINES if config.tiles == 1 else (*ENGINES, "ring")


class TileControl(wiring.Signature):
    """What registers and counters ask of a tile's command processor and see of it, from their side.

    start: begin the job at ``job`` with the windows of this cycle; without effect while ``busy``.
    abort: end the running job. cycle: the device's cycle counter.
    ended: high for one cycle when a job's ``status`` and ``code`` are there and ``busy`` falls.
    states: the registers ``load_state``, ``matmul_state``, ``store_state``, ``ring_state``; after a fault as
        they were at the fault.
    fault_command, fault_address: of the last job, as in its completion record.
    active: the job's cycles are counted.
    matmul_queued, matmul_waiting: there is a next MATMUL; it waits for a semaphore.
    """

    def __init__(self) -> None:
        super().__init__({
            "job": Out(64),
            "window_base": Out(64),
            "window_limit": Out(64),
            "start": Out(1),
            "abort": Out(1),
            "cycle": Out(64),
            "semaphore_index": Out(5),
            "semaphore_value": In(16),
            "busy": In(1),
            "stopping": In(1),
            "ended": In(1),
            "status": In(8),
            "code": In(8),
            "states": In(data.ArrayLayout(32, len(_RECORDS))),
            "fetched": In(INDEX_BITS),
            "fault_command": In(INDEX_BITS),
            "fault_address": In(64),
            "active": In(1),
            "matmul_waiting": In(1),
            "matmul_queued": In(1),
        })


class _State(ShapedEnum, shape=3):
    IDLE = 0
    DESCRIPTOR = 1  # the descriptor is on its way
    RUN = 2
    STOP = 3        # a fault: the engines take what memory still answers
    CLEAR = 4       # all engines forget everything
    REPORT = 5      # the completion record is on its way to memory
    END = 6


class CommandProcessor(wiring.Component):
    """Fetches a job's records, checks and dispatches them in order, orders the engines by semaphores, reports the end.

    A job: descriptor -> commands -> all engines idle and quiet (end stamp) -> ``clear`` -> completion record written
    and acknowledged -> ``ended``. A fault, the watchdog or an abort sets ``job.stop``, waits until no memory
    request is unanswered, and goes the same way from ``clear`` on. Where the completion address is not known to be
    good (a bad descriptor), nothing is written and the registers alone tell.
    The completion names the command at fault; after WATCHDOG and ABORT the oldest command that had not ended.
    ``address`` is the record's own for a bad record, the semaphore's number for an overflow, and 0 after WATCHDOG
    and ABORT.

    Latency, with L cycles from a request to its response: accepted doorbell to a first command without waits at
    its engine L + 6, a cycle more with waits; ``done`` to a dependent command 2. Throughput one command every
    two cycles.

    Parameters
    ----------
    config : DeviceConfig
        The device.

    Members
    -------
    tile : In
        Number of this tile.
    control : In(TileControl())
    load, matmul, store, ring : Out(EnginePort(...))
        ``ring`` where there are several tiles.
    job : Out(JobState(...))
    clear : Out(1)
        Synchronous reset of all engines, for one cycle while none has a request in flight.
    progress : In(1)
        An engine moved data or memory answered it; with fetched beats, dispatch and ``done``, what holds the
        watchdog off.
    memory : Out(MemoryPort(...))
    notices : Out(stream of notice_layout)
        Signals for other tiles, which leave before the job ends well.
    notice, notice_valid : In
        A signal of another tile; it counts while a job of its context and epoch runs.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "tile": In(8),
            "notices": Out(stream.Signature(notice_layout())),
            "notice": In(notice_layout()), "notice_valid": In(1),
            "control": In(TileControl()),
            **{name: Out(EnginePort(_RECORDS[name][1])) for name in engines(config)},
            "job": Out(JobState(address_bits=config.address_bits)),
            "clear": Out(1),
            "progress": In(1),
            "memory": Out(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.config.address_bits
        remote = self.config.tiles > 1
        names = engines(self.config)
        opcodes = [_RECORDS[name][0] for name in names]
        control, ports = self.control, [getattr(self, name) for name in names]
        m.submodules.fetcher = fetcher = Fetcher(address_bits=bits)
        m.submodules.semaphores = semaphores = Semaphores(engines=len(ports), remote=remote)
        stages = [IssueStage(remote=remote) for _ in ports]
        for name, stage in zip(names, stages, strict=True):
            m.submodules[f"issue_{name}"] = ResetInserter(self.clear)(stage)

        state = Signal(_State)
        descriptor = {f.name: Signal(f.bits, name=f"descriptor_{f.name}") for f in DESCRIPTOR.fields
                      if f.name in ("job", "commands", "completion_address")}
        job_address, record_address = Signal(bits), Signal(bits + 1)
        started, ended = Signal(64), Signal(64)
        dispatched = Signal(INDEX_BITS)
        report = Signal()  # the completion address is good
        fault = {"status": Signal(8), "code": Signal(Code), "command": Signal(INDEX_BITS), "address": Signal(64)}
        raised = Signal()  # a fault in this cycle, with the values below
        found = {name: Signal(s.shape(), name=f"found_{name}") for name, s in fault.items()}

        def raise_fault(code, address, command=0, status=Status.FAULT):
            return [raised.eq(1), found["status"].eq(status), found["code"].eq(code),
                    found["command"].eq(command), found["address"].eq(address)]

        # -- start ---------------------------------------------------------------------------------------
        size = self.config.tiles * self.config.memory.bytes
        base, limit = Signal(bits + 1), Signal(bits + 1)
        start, start_good = Signal(), Signal()
        m.d.comb += [
            base.eq(Mux(control.window_base > size, size, control.window_base)),
            limit.eq(Mux(control.window_limit > size, size, control.window_limit)),
            start.eq(control.start & (state == _State.IDLE)),
            start_good.eq((control.job[:_RECORD_SHIFT] == 0) & (control.job >= base)
                          & (control.job + RECORD_BYTES <= limit)),
            fetcher.start.eq(start & start_good),
            fetcher.address.eq(control.job),
            fetcher.limit.eq(limit),
            semaphores.clear.eq(start),
        ]
        with m.If(start):
            m.d.sync += [
                state.eq(_State.DESCRIPTOR),
                started.eq(control.cycle),
                job_address.eq(control.job),
                record_address.eq(control.job + RECORD_BYTES),
                self.job.window_base.eq(base),
                self.job.window_limit.eq(limit),
                self.job.context.eq(0),
                self.job.epoch.eq(0),
                dispatched.eq(0),
                report.eq(0),
                fault["status"].eq(Status.PENDING),
                fault["code"].eq(Code.NONE),
                fault["command"].eq(0),
                fault["address"].eq(0),
            ]
            m.d.sync += [s.eq(0) for s in descriptor.values()]
            with m.If(control.job[:_RECORD_SHIFT] != 0):
                m.d.comb += raise_fault(Code.BAD_DESCRIPTOR, control.job)
            with m.Elif(~start_good):
                m.d.comb += raise_fault(Code.MEMORY_WINDOW, control.job)

        # -- watchdog, abort: below every other fault of the cycle -----------------------------------------
        patience, quiet_cycles = Signal(32), Signal(32)
        running = Signal()
        done = Cat(p.done for p in ports)
        dispatch = Signal()
        fetched = self.memory.responses.valid & self.memory.responses.ready
        oldest = self._oldest(m, stages, dispatched)
        m.d.comb += running.eq((state == _State.DESCRIPTOR) | (state == _State.RUN))
        with m.If(start):
            m.d.sync += [patience.eq(self.config.control.watchdog_cycles), quiet_cycles.eq(0)]
        with m.Elif(running):
            m.d.sync += quiet_cycles.eq(Mux(done.any() | dispatch | fetched | self.progress, 0, quiet_cycles + 1))
            with m.If(control.abort):
                m.d.comb += raise_fault(Code.ABORT, 0, oldest, Status.ABORTED)
            with m.Elif(quiet_cycles == patience):
                m.d.comb += raise_fault(Code.WATCHDOG, 0, oldest)

        # -- records ---------------------------------------------------------------------------------------
        record = fetcher.records
        job = data.View(DESCRIPTOR.layout, record.payload.data)
        header = data.View(HEADER.layout, record.payload.data)
        completion_end, job_end = Signal(65), Signal(40)
        m.d.comb += [
            completion_end.eq(job.completion_address + RECORD_BYTES),
            job_end.eq(record_address + (job.commands << _RECORD_SHIFT)),
            fetcher.end.eq(job_end),
        ]
        with m.If((state == _State.DESCRIPTOR) & record.valid):
            m.d.comb += [record.ready.eq(1), fetcher.end_valid.eq(1), dispatch.eq(1)]
            m.d.sync += state.eq(_State.RUN)
            m.d.sync += [s.eq(job[name]) for name, s in descriptor.items()]
            with m.If(job.watchdog_cycles != 0):
                m.d.sync += patience.eq(job.watchdog_cycles)
            with m.If(record.payload.error):
                m.d.comb += raise_fault(Code.MEMORY_ERROR, job_address)
            with m.Elif(job.version != VERSION):
                m.d.comb += raise_fault(Code.BAD_VERSION, job_address)
            with m.Elif(job.opcode != Opcode.JOB):
                m.d.comb += raise_fault(Code.BAD_DESCRIPTOR, job_address)
            with m.Elif(job.completion_address[:_RECORD_SHIFT] != 0):
                m.d.comb += raise_fault(Code.BAD_DESCRIPTOR, job.completion_address)
            with m.Elif((job.completion_address < self.job.window_base) | (completion_end > self.job.window_limit)):
                m.d.comb += raise_fault(Code.MEMORY_WINDOW, job.completion_address)
            with m.Else():
                m.d.sync += [report.eq(1), self.job.context.eq(job.context), self.job.epoch.eq(job.epoch)]
                with m.If((record.payload.data & _reserved(DESCRIPTOR, RECORD_BYTES)).any() | job.header_flags.any()):
                    m.d.comb += raise_fault(Code.BAD_FIELD, job_address)
                with m.Elif(job_end > self.job.window_limit):
                    m.d.comb += raise_fault(Code.MEMORY_WINDOW, self.job.window_limit)

        bad_field = Signal()
        m.d.comb += bad_field.eq(
            (record.payload.data & _reserved(HEADER, 12)).any() | Cat(header.context, header.header_flags).any()
            | self._bad_signals(header))
        command = Signal()
        m.d.comb += command.eq((state == _State.RUN) & record.valid & (dispatched != descriptor["commands"]))
        for stage in stages:
            m.d.comb += [stage.i.payload.record.eq(record.payload.data), stage.i.payload.index.eq(dispatched)]
        with m.If(command):
            with m.If(record.payload.error):
                m.d.comb += raise_fault(Code.MEMORY_ERROR, record_address, dispatched)
            with m.Elif(header.version != VERSION):
                m.d.comb += raise_fault(Code.BAD_VERSION, record_address, dispatched)
            with m.Elif(Cat(header.opcode == o for o in opcodes) == 0):
                m.d.comb += raise_fault(Code.BAD_OPCODE, record_address, dispatched)
            with m.Elif(bad_field):
                m.d.comb += raise_fault(Code.BAD_FIELD, record_address, dispatched)
            with m.Else():
                for opcode, stage in zip(opcodes, stages, strict=True):
                    with m.If(header.opcode == opcode):
                        m.d.comb += [stage.i.valid.eq(1), record.ready.eq(stage.i.ready), dispatch.eq(stage.i.ready)]
            with m.If(dispatch):
                m.d.sync += [dispatched.eq(dispatched + 1), record_address.eq(record_address + RECORD_BYTES)]

        # -- engines ---------------------------------------------------------------------------------------
        for e, (port, stage) in enumerate(zip(ports, stages, strict=True)):
            m.d.comb += [
                port.commands.payload.as_value().eq(stage.commands.payload),
                port.commands.valid.eq(stage.commands.valid),
                stage.commands.ready.eq(port.commands.ready),
                stage.done.eq(port.done),
                stage.stop.eq(~running),
                semaphores.waits[e].eq(stage.waits),
                semaphores.request[e].eq(stage.request),
                stage.grant.eq(semaphores.grant[e]),
                semaphores.signals[e].eq(stage.signals),
                semaphores.signal[e].eq(stage.signal),
            ]
        owner = Array(stage.oldest for stage in stages)[semaphores.overflow_engine]
        with m.If(running & semaphores.overflow):
            m.d.comb += raise_fault(Code.SEMAPHORE_OVERFLOW, semaphores.overflow_semaphore,
                                    Mux(semaphores.overflow_remote, oldest, owner))
        for port, stage in reversed([*zip(ports, stages, strict=True)]):
            with m.If(running & port.fault_valid):
                m.d.comb += raise_fault(port.fault.code, port.fault.address, stage.oldest)

        # -- the end ---------------------------------------------------------------------------------------
        quiet = Cat(p.quiet for p in ports).all()
        idle = quiet & Cat(s.empty for s in stages).all() & ~Cat(p.busy for p in ports).any()
        if remote:
            idle = idle & self._notices(m, stages, semaphores, state == _State.RUN)
        acknowledged = Signal(2)
        memory = self.memory
        response = memory.responses
        with m.Switch(state):
            with m.Case(_State.RUN):
                with m.If((dispatched == descriptor["commands"]) & idle & ~raised):
                    m.d.sync += [state.eq(_State.CLEAR), ended.eq(control.cycle), fault["status"].eq(Status.DONE)]
            with m.Case(_State.STOP):
                with m.If(quiet & fetcher.drained):
                    m.d.sync += [state.eq(_State.CLEAR), ended.eq(control.cycle)]
            with m.Case(_State.CLEAR):
                # What was fetched behind a short job may still be on its way.
                with m.If(fetcher.drained):
                    m.d.comb += self.clear.eq(1)
                    m.d.sync += [state.eq(Mux(report, _State.REPORT, _State.END)), acknowledged.eq(0)]
            with m.Case(_State.REPORT):
                with m.If(response.valid & response.payload.write):
                    m.d.sync += acknowledged.eq(acknowledged + 1)
                    with m.If(response.payload.error):
                        m.d.sync += [fault["status"].eq(Status.FAULT), fault["code"].eq(Code.MEMORY_ERROR)]
                with m.If(acknowledged == 2):
                    m.d.sync += state.eq(_State.END)
            with m.Case(_State.END):
                m.d.sync += state.eq(_State.IDLE)
        with m.If(raised):
            m.d.sync += state.eq(_State.STOP)
            m.d.sync += [fault[name].eq(value) for name, value in found.items()]

        # -- memory: the fetcher's reads while a job runs, then the completion's two beats --------------------
        completion = Signal(COMPLETION.layout)
        values = {"job": descriptor["job"], "tile": self.tile, "context": self.job.context, "epoch": self.job.epoch,
                  "start": started, "end": ended, **fault}
        m.d.comb += [completion[name].eq(value) for name, value in values.items()]
        asked, sent = Signal(2), Signal(2)
        requests, writes = memory.requests, memory.write_data
        halves = Array(completion.as_value()[k * BEAT_BITS:(k + 1) * BEAT_BITS] for k in range(2))
        m.d.comb += [
            fetcher.stop.eq(~running),
            self.job.stop.eq((state == _State.STOP) | (state == _State.CLEAR)),
            fetcher.responses.payload.eq(response.payload),
            fetcher.responses.valid.eq(response.valid & ~response.payload.write),
            response.ready.eq(1),
            writes.valid.eq((state == _State.REPORT) & (sent != 2)),
            writes.payload.data.eq(halves[sent[0]]),
            writes.payload.strobe.eq(~0),
            fetcher.requests.ready.eq(requests.ready),
        ]
        with m.If(state == _State.REPORT):
            m.d.comb += [
                requests.valid.eq(asked != 2),
                requests.payload.write.eq(1),
                requests.payload.address.eq(descriptor["completion_address"] | (asked[0] << BEAT_SHIFT)),
                requests.payload.tag.eq(_COMPLETION_TAG),
            ]
            m.d.sync += [
                asked.eq(asked + (requests.valid & requests.ready)),
                sent.eq(sent + (writes.valid & writes.ready)),
            ]
        with m.Else():
            m.d.comb += [requests.valid.eq(fetcher.requests.valid), requests.payload.eq(fetcher.requests.payload)]
            m.d.sync += [asked.eq(0), sent.eq(0)]
        m.d.comb += [requests.payload.context.eq(self.job.context), requests.payload.epoch.eq(self.job.epoch)]

        # -- what registers and counters see ------------------------------------------------------------------
        m.d.comb += [
            semaphores.read_index.eq(control.semaphore_index),
            control.semaphore_value.eq(semaphores.read_value),
            control.busy.eq(state != _State.IDLE),
            control.stopping.eq(state == _State.STOP),
            control.ended.eq(state == _State.END),
            control.status.eq(fault["status"]),
            control.code.eq(fault["code"]),
            control.fetched.eq(dispatched),
            control.fault_command.eq(fault["command"]),
            control.fault_address.eq(fault["address"]),
            control.active.eq(running | (state == _State.STOP)),
            control.matmul_waiting.eq(stages[1].waiting),
            control.matmul_queued.eq(stages[1].queued),
        ]
        frozen = Signal()  # a fault's states stay until the next job
        with m.If(raised | start):
            m.d.sync += frozen.eq(raised)
        for e, (port, stage) in enumerate(zip(ports, stages, strict=True)):
            live, kept = Signal(32, name=f"live_{names[e]}"), Signal(32, name=f"kept_{names[e]}")
            code = Signal(2, name=f"state_{names[e]}")
            wait = Signal(5, name=f"wait_{names[e]}")
            with m.If(port.fault_valid):
                m.d.comb += code.eq(ENGINE_STATES.index("faulted"))
            with m.Elif(stage.running):
                m.d.comb += code.eq(ENGINE_STATES.index("running"))
            with m.Elif(stage.waiting):
                m.d.comb += [
                    code.eq(ENGINE_STATES.index("waiting")),
                    wait.eq(Mux(semaphores.met[e], stage.waits[1].semaphore, stage.waits[0].semaphore)),
                ]
            with m.If(~stage.empty):
                m.d.comb += live.eq(Cat(code, Const(0, 6), wait, Const(0, 3), stage.oldest[:16]))
            m.d.comb += control.states[e].eq(Mux(frozen, kept, live))
            with m.If(raised):
                m.d.sync += kept.eq(live)
        return m

    def _bad_signals(self, header):
        """Whether a signal goes to a tile that is not there; the tile of a local one must be zero."""
        bad = []
        for k in range(2):
            remote, tile = header[f"signal{k}_remote"], header[f"signal{k}_tile"]
            bad.append(Mux(remote, (self.config.tiles == 1) | (tile >= self.config.tiles), tile != 0))
        return Cat(bad).any()

    def _notices(self, m: Module, stages: list[IssueStage], semaphores: Semaphores, running) -> Value:
        """Signals to and from other tiles. Returns whether all of this job's have left."""
        m.submodules.notices = unit = NoticeUnit(config=self.config, engines=len(stages))
        wiring.connect(m, unit.notices, wiring.flipped(self.notices))
        for e, stage in enumerate(stages):
            m.d.comb += [
                stage.tile.eq(self.tile), stage.room.eq(unit.room[e]), unit.far[e].eq(stage.far),
                unit.accept[e].eq(stage.commands.valid & stage.commands.ready), unit.ended[e].eq(stage.signal),
            ]
        m.d.comb += [
            unit.context.eq(self.job.context), unit.epoch.eq(self.job.epoch), unit.clear.eq(self.clear),
            semaphores.remote.enable.eq(self.notice_valid & running & (self.notice.context == self.job.context)
                                        & (self.notice.epoch == self.job.epoch)),
            semaphores.remote.semaphore.eq(self.notice.semaphore),
        ]
        return unit.quiet

    def _oldest(self, m: Module, stages: list[IssueStage], dispatched: Signal) -> Signal:
        """Index of the oldest command that has not ended: the least of the stages', or the next to dispatch."""
        least = dispatched
        for name, stage in zip(engines(self.config), stages, strict=True):
            found = Signal(INDEX_BITS, name=f"oldest_{name}")
            m.d.comb += found.eq(Mux(~stage.empty & (stage.oldest < least), stage.oldest, least))
            least = found
        return least


def _reserved(record, size: int) -> int:
    """The bits of a record's first ``size`` bytes that no field covers."""
    mask = (1 << 8 * size) - 1
    for field in record.fields:
        mask &= ~(((1 << field.bits) - 1) << field.offset)
    return mask
