"""Clients of a tile's memory ports: who goes first, and the way back."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .port import CLIENT_BITS, LEAF_TAG_BITS, TAG_BITS, Client, MemoryPort

__all__ = ["MemoryArbiter", "PortRouter", "port_of", "rotate"]

_CLIENTS = {"control": Client.CONTROL, "load": Client.LOAD, "store": Client.STORE, "host": Client.HOST}
_WRITES_AHEAD = 16  # writes granted whose data is still to come


def port_of(config: DeviceConfig, address):
    """The port whose share holds the byte ``address``."""
    shift = (config.memory.interleave_bytes - 1).bit_length()
    return address[shift:shift + (config.ports - 1).bit_length()]


def rotate(m: Module, valids: list, last, choice) -> None:
    """Set ``choice`` to the number of the first of ``valids`` behind ``last``, in a circle."""
    count = len(valids)
    with m.Switch(last):
        for before in range(count):
            with m.Case(before):
                for step in reversed(range(1, count + 1)):
                    candidate = (before + step) % count
                    with m.If(valids[candidate]):
                        m.d.comb += choice.eq(candidate)


class MemoryArbiter(wiring.Component):
    """Every port of the memory, shared by the clients of a tile.

    Requests: round robin, one a port and cycle without a bubble, through one register. Write data: passes straight
    in the order of the grants, so it is taken from a client only when its request has been granted; a client
    shows its request without waiting for its data to be taken. Responses: pass straight to the client in the tag.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    control, load, store, host : In(MemoryPort(leaf tag)).array(P)
    memory : Out(MemoryPort(full tag)).array(P)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        leaf = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        full = MemoryPort(address_bits=config.address_bits, tag_bits=TAG_BITS)
        super().__init__({
            **{name: In(leaf).array(config.ports) for name in _CLIENTS},
            "memory": Out(full).array(config.ports),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        for index in range(self._config.ports):
            clients = {code: getattr(self, name)[index] for name, code in _CLIENTS.items()}
            self._port(m, index, clients, self.memory[index])
        return m

    def _port(self, m: Module, index: int, clients: dict, memory) -> None:
        order = fifo.SyncFIFO(width=CLIENT_BITS, depth=_WRITES_AHEAD)
        m.submodules[f"order{index}"] = order
        ports = list(clients.values())

        last = Signal(range(len(ports)), name=f"last{index}")
        choice = Signal(range(len(ports)), name=f"choice{index}")
        granted = Signal(name=f"granted{index}")
        room = Signal(name=f"room{index}")
        # A write whose place in the order is not free must not keep reads out.
        wants = [Signal(name=f"want{index}_{number}") for number in range(len(ports))]
        for want, port in zip(wants, ports, strict=True):
            m.d.comb += want.eq(port.requests.valid & (order.w_rdy | ~port.requests.p.write))
        rotate(m, wants, last, choice)
        asked = Array(port.requests.payload for port in ports)[choice]
        m.d.comb += [
            room.eq(~memory.requests.valid | memory.requests.ready),
            granted.eq(room & (Cat(wants) != 0)),
            order.w_en.eq(granted & asked.write),
            order.w_data.eq(Array(list(clients))[choice]),
        ]
        for number, port in enumerate(ports):
            m.d.comb += port.requests.ready.eq(granted & (choice == number))
        with m.If(room):
            m.d.sync += memory.requests.valid.eq(granted)
        with m.If(granted):
            m.d.sync += [
                last.eq(choice),
                *(memory.requests.payload[name].eq(asked[name]) for name in ("address", "write", "context", "epoch")),
                memory.requests.p.tag.eq(Cat(asked.tag, Array(list(clients))[choice])),
            ]

        for code, port in clients.items():
            mine = Signal(name=f"data{index}_{int(code)}")
            m.d.comb += [
                mine.eq(order.r_rdy & (order.r_data == code)),
                port.write_data.ready.eq(mine & memory.write_data.ready),
            ]
            with m.If(mine):
                m.d.comb += [
                    memory.write_data.valid.eq(port.write_data.valid),
                    memory.write_data.payload.eq(port.write_data.payload),
                ]
        m.d.comb += order.r_en.eq(memory.write_data.valid & memory.write_data.ready)

        answer = memory.responses
        client = answer.p.tag[LEAF_TAG_BITS:]
        for code, port in clients.items():
            mine = Signal(name=f"answer{index}_{int(code)}")
            m.d.comb += [
                mine.eq(client == code),
                port.responses.valid.eq(answer.valid & mine),
                *(port.responses.payload[name].eq(answer.payload[name])
                  for name in ("data", "write", "error", "context", "epoch")),
                port.responses.p.tag.eq(answer.p.tag[:LEAF_TAG_BITS]),
            ]
            with m.If(mine):
                m.d.comb += answer.ready.eq(port.responses.ready)


class PortRouter(wiring.Component):
    """One client port onto the P ports of a tile, by the interleave of the address.

    For clients with few beats in flight: requests, data and responses pass straight, write data after its request
    has been accepted. Responses of different ports come in any order, as the contract of a port lets them.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    i : In(MemoryPort(leaf tag))
    o : Out(MemoryPort(leaf tag)).array(P)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        leaf = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({"i": In(leaf), "o": Out(leaf).array(config.ports)})

    def elaborate(self, platform) -> Module:
        m = Module()
        ports = self._config.ports
        if ports == 1:
            wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o[0]))
            return m
        m.submodules.order = order = fifo.SyncFIFO(width=(ports - 1).bit_length(), depth=_WRITES_AHEAD)
        i = self.i
        target = port_of(self._config, i.requests.p.address)
        able = Signal()
        m.d.comb += [
            able.eq(order.w_rdy | ~i.requests.p.write),
            i.requests.ready.eq(able & Array(o.requests.ready for o in self.o)[target]),
            order.w_en.eq(i.requests.valid & i.requests.ready & i.requests.p.write),
            order.w_data.eq(target),
            i.write_data.ready.eq(order.r_rdy & Array(o.write_data.ready for o in self.o)[order.r_data]),
            order.r_en.eq(i.write_data.valid & i.write_data.ready),
        ]
        last, choice, turn = Signal(range(ports)), Signal(range(ports)), Signal(range(ports))
        held = Signal()
        rotate(m, [o.responses.valid for o in self.o], last, choice)
        # A response that is shown stays, whatever arrives at the other ports meanwhile.
        m.d.comb += [
            turn.eq(Mux(held, last, choice)),
            i.responses.valid.eq(Array(o.responses.valid for o in self.o)[turn]),
            i.responses.payload.eq(Array(o.responses.payload for o in self.o)[turn]),
        ]
        with m.If(i.responses.valid):
            m.d.sync += [last.eq(turn), held.eq(~i.responses.ready)]
        for number, o in enumerate(self.o):
            m.d.comb += [
                o.requests.valid.eq(i.requests.valid & able & (target == number)),
                o.requests.payload.eq(i.requests.payload),
                o.write_data.valid.eq(i.write_data.valid & order.r_rdy & (order.r_data == number)),
                o.write_data.payload.eq(i.write_data.payload),
                o.responses.ready.eq(i.responses.ready & (turn == number)),
            ]
        return m
