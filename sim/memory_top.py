"""A tile's DRAM alone, with plain ports, for traces."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.config import DeviceConfig
from ringloom.hw.memory.hbm.events import CHANNEL_EVENTS
from ringloom.hw.memory.hbm.memory import COMMAND_RECORD, HbmMemory
from ringloom.hw.memory.port import BEAT_BITS, STROBE_BITS, TAG_BITS, StoragePort

__all__ = ["MemoryTop"]


class MemoryTop(wiring.Component):
    """:class:`HbmMemory` with one vector a port: ``c{p}_*`` of channel p, ``storage0_{p}_*`` its storage.

    Parameters
    ----------
    config : DeviceConfig
        ``memory.*``.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        self._memory = memory = HbmMemory(config=config)
        ports: dict[str, Any] = {}
        for p in range(config.ports):
            commands = memory.commands[p]
            ports |= {
                f"c{p}_valid": In(1), f"c{p}_ready": Out(1), f"c{p}_write": In(1), f"c{p}_tag": In(TAG_BITS),
                f"c{p}_address": In(config.address_bits),
                f"c{p}_data": In(BEAT_BITS), f"c{p}_strobe": In(STROBE_BITS), f"c{p}_data_valid": In(1),
                f"c{p}_data_ready": Out(1),
                f"c{p}_response": Out(1), f"c{p}_take": In(1), f"c{p}_response_tag": Out(TAG_BITS),
                f"c{p}_response_write": Out(1), f"c{p}_response_data": Out(BEAT_BITS),
                **{f"c{p}_{name}": Out(len(getattr(commands, name))) for name in COMMAND_RECORD},
                **{f"c{p}_event_{name}": Out(member.shape) for name, member in CHANNEL_EVENTS.members.items()},
                f"storage0_{p}": Out(StoragePort(address_bits=(config.memory.bytes - 1).bit_length(), commands=True)),
            }
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = self._memory
        for p in range(self._config.ports):
            def port(name: str, p: int = p) -> Any:
                return getattr(self, f"c{p}_{name}")

            at = memory.ports[p]
            m.d.comb += [
                at.requests.valid.eq(port("valid")), port("ready").eq(at.requests.ready),
                at.requests.payload.address.eq(port("address")), at.requests.payload.write.eq(port("write")),
                at.requests.payload.tag.eq(port("tag")),
                at.write_data.valid.eq(port("data_valid")), port("data_ready").eq(at.write_data.ready),
                at.write_data.payload.data.eq(port("data")), at.write_data.payload.strobe.eq(port("strobe")),
                port("response").eq(at.responses.valid), at.responses.ready.eq(port("take")),
                port("response_tag").eq(at.responses.payload.tag),
                port("response_write").eq(at.responses.payload.write),
                port("response_data").eq(at.responses.payload.data),
            ]
            for name in COMMAND_RECORD:
                m.d.comb += port(name).eq(getattr(memory.commands[p], name))
            for name in CHANNEL_EVENTS.members:
                m.d.comb += port(f"event_{name}").eq(getattr(memory.events[p], name))
            wiring.connect(m, memory.storage[p], wiring.flipped(getattr(self, f"storage0_{p}")))
        return m
