"""Memory for benches: a storage behind a StoragePort, and a whole scripted memory behind MemoryPorts.

``ScriptedMemory`` has nothing of the device's own memory in it: it answers after random delays, in any order the
port contract allows, and checks what a requester does (alignment, share of the port, stable payloads).
"""

import random
from collections import deque

from ringloom.hw.config import BEAT_BYTES, DeviceConfig


def bench(simulator, function, *arguments, background: bool = False, **options) -> None:
    """Add the async ``function(ctx, *arguments, **options)`` to ``simulator``."""
    async def run(ctx) -> None:
        await function(ctx, *arguments, **options)

    simulator.add_testbench(run, background=background)


def port_index(config: DeviceConfig, address: int) -> int:
    """The port whose share holds the byte ``address``."""
    return address // config.memory.interleave_bytes % config.ports


async def storage_process(ctx, port, contents: bytearray) -> None:
    """A background process: one storage port on ``contents`` (which several ports may share)."""
    async for _, _, enable, write, address, word, strobe in ctx.tick().sample(
            port.enable, port.write, port.address, port.write_data, port.strobe):
        if not enable:
            continue
        start = BEAT_BYTES * address
        ctx.set(port.read_data, int.from_bytes(contents[start:start + BEAT_BYTES], "little"))
        if write:
            for lane, byte in enumerate(word.to_bytes(BEAT_BYTES, "little")):
                if strobe >> lane & 1:
                    contents[start + lane] = byte


class ScriptedMemory:
    """Memory behind the P ports of a requester.

    Parameters
    ----------
    config : DeviceConfig
    contents : bytearray of memory.bytes, changed by writes
    latency : (lowest, highest) cycles from a request to its answer
    ready : chance that a request is taken in a cycle
    reorder : answers of different tags come in any order
    errors : byte addresses of beats that answer with ``error``
    seed : of every random choice

    Attributes
    ----------
    reads, writes : lists of (cycle, port, address) of accepted requests
    """

    def __init__(self, config: DeviceConfig, contents: bytearray, *, latency: tuple[int, int] = (8, 8),
                 ready: float = 1.0, reorder: bool = False, errors: tuple[int, ...] = (), seed: int = 0) -> None:
        self.config, self.contents, self.latency = config, contents, latency
        self.ready, self.reorder, self.errors = ready, reorder, set(errors)
        self.random = random.Random(seed)
        self.reads: list[tuple[int, int, int]] = []
        self.writes: list[tuple[int, int, int]] = []
        self.outstanding = 0
        self.cycle = 0

    def add_to(self, simulator, ports) -> None:
        """Answer on ``ports`` (an array of MemoryPort as the requester has them) in ``simulator``."""
        for index in range(self.config.ports):
            bench(simulator, self._serve, ports[index], index, background=True)

    async def _serve(self, ctx, port, index: int) -> None:
        pending: list[dict] = []        # accepted, in order
        beats: deque = deque()          # write data not yet joined with its request
        waiting: deque = deque()        # writes without their data
        shown = None
        held = None
        cycle = 0
        while True:
            take = self.random.random() < self.ready
            ctx.set(port.requests.ready, take)
            ctx.set(port.write_data.ready, self.random.random() < self.ready)
            if shown is None:
                shown = self._choose(pending, cycle)
                ctx.set(port.responses.valid, shown is not None)
                if shown is not None:
                    ctx.set(port.responses.payload, self._answer(shown))
            _, _, valid, payload, offered, beat, w_valid, w_ready, taken = await ctx.tick().sample(
                port.requests.valid, port.requests.payload, port.requests.ready, port.write_data.payload,
                port.write_data.valid, port.write_data.ready, port.responses.ready)
            cycle += 1
            self.cycle = max(self.cycle, cycle)
            if w_valid and w_ready:
                beats.append((beat.data, beat.strobe))
            request = (payload.address, payload.write, payload.tag, payload.context, payload.epoch) if valid else None
            if held is not None:
                assert request == held, f"port {index}: a request that was not taken changed: {held} -> {request}"
            held = request if valid and not offered else None
            if valid and offered:
                address, write, tag, context, epoch = request
                assert address % BEAT_BYTES == 0, f"address {address:#x} is not aligned to a beat"
                assert port_index(self.config, address) == index, f"address {address:#x} is not port {index}'s"
                entry = {"address": address, "write": write, "tag": tag, "context": context, "epoch": epoch,
                         "due": cycle + self.random.randint(*self.latency) - 1, "data": None}
                pending.append(entry)
                self.outstanding += 1
                (self.writes if write else self.reads).append((cycle - 1, index, address))
                if write:
                    waiting.append(entry)
            while waiting and beats:
                waiting.popleft()["data"] = beats.popleft()
            if shown is not None and taken:
                self.outstanding -= 1
                shown = None

    def _choose(self, pending: list[dict], cycle: int):
        """Remove and return a request that may be answered now."""
        able: list[int] = []
        tags, addresses = set(), set()
        for number, entry in enumerate(pending):
            blocked = entry["tag"] in tags or entry["address"] in addresses
            due = entry["due"] <= cycle and (not entry["write"] or entry["data"] is not None)
            if due and not blocked:
                able.append(number)
            tags.add(entry["tag"])
            addresses.add(entry["address"])
            if not self.reorder:
                break
        if not able:
            return None
        return pending.pop(self.random.choice(able))

    def _answer(self, entry: dict) -> dict:
        start = entry["address"]
        word = int.from_bytes(self.contents[start:start + BEAT_BYTES], "little")
        if entry["write"]:
            value, strobe = entry["data"]
            for lane, byte in enumerate(value.to_bytes(BEAT_BYTES, "little")):
                if strobe >> lane & 1:
                    self.contents[start + lane] = byte
        return {"data": 0 if entry["write"] else word, "tag": entry["tag"], "write": entry["write"],
                "error": start in self.errors, "context": entry["context"], "epoch": entry["epoch"]}
