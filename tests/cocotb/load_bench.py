"""The LOAD engine's exported Verilog on a memory with random delays, against numpy's slices."""

import cocotb

from ringloom.hw.config import BEAT_BYTES
from ringloom.hw.isa import LOAD, Target
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.memory.port import LEAF_TAG_BITS, request_layout, response_layout
from tests.support.cocotb_bench import config, edge, note, seeded, settings, settled, start, value
from tests.support.load import DEFAULTS, expected_blocks


class Memory:
    """One memory port that answers after 4 to 40 cycles, in any order of tags, and takes requests when it likes."""

    def __init__(self, dut, index, contents, random):
        self.dut, self.contents, self.random = dut, contents, random
        self.prefix = f"memory_{index}_"
        self.waiting: list[tuple[int, int, int]] = []  # (cycle from which it may be answered, tag, address)
        device = config()
        self.request = request_layout(device.address_bits, LEAF_TAG_BITS)
        self.response = response_layout(LEAF_TAG_BITS)
        self.answering = False

    def port(self, name):
        return getattr(self.dut, self.prefix + name)

    def drive(self, cycle):
        self.port("requests_ready").value = int(self.random.random() < 0.7 and len(self.waiting) < 64)
        ripe = [entry for entry in self.waiting if entry[0] <= cycle]
        self.answering = bool(ripe)
        self.port("responses_valid").value = int(self.answering)
        if ripe:
            entry = self.random.choice(ripe)
            self.waiting.remove(entry)
            data = int.from_bytes(self.contents[entry[2]:entry[2] + BEAT_BYTES], "little")
            word = self.response.const({"data": data, "tag": entry[1], "write": 0, "error": 0})
            self.port("responses_payload").value = word.as_value().value

    def sample(self, cycle):
        if self.answering:
            assert value(self.port("responses_ready")), "LOAD must take every response it asked for"
        if value(self.port("requests_valid")) and value(self.port("requests_ready")):
            request = self.request.from_bits(value(self.port("requests_payload")))
            assert request.address % BEAT_BYTES == 0 and not request.write
            assert all(tag != request.tag for _, tag, _ in self.waiting), "a tag in flight is used again"
            self.waiting.append((cycle + self.random.randrange(4, 40), request.tag, request.address))


def commands(device, random, count):
    """Random LOADs that stay inside their target."""
    shapes = block_shapes(device)
    for index in range(count):
        target = (Target.ACTIVATION, Target.WEIGHT)[index % 2]
        size, rows, blocks = shapes[target].bytes, random.randrange(1, 9), random.randrange(1, 4)
        transpose = index % 3 == 2
        groups = -(-rows // size) if transpose else rows
        kept = random.randrange(1, size * blocks + 1)
        span = kept if transpose else blocks
        yield {"target": target, "transpose": int(transpose), "address": random.randrange(0, 20_000), "rows": rows,
               "row_stride": random.randrange(0, 300), "row_bytes": kept, "row_blocks": span,
               "block_pitch": 1, "row_pitch": span | 1, "pad_value": random.randrange(256),
               "destination": random.randrange(shapes[target].blocks - groups * (span | 1) - 1)}


@cocotb.test()
async def loads_put_the_right_blocks(dut):
    device, random = config(), seeded()
    shapes = block_shapes(device)
    contents = bytes(random.randbytes(32_768))
    memories = [Memory(dut, index, contents, random) for index in range(device.ports)]
    todo = list(commands(device, random, settings()["commands"]))
    expected = {target: {} for target in shapes}
    for command in todo:
        expected[command["target"]] |= expected_blocks(device, contents, command)
    got = {target: {} for target in shapes}
    raws = [int.from_bytes(LOAD.encode(**(DEFAULTS | command)), "little") for command in todo]
    await start(dut, port_commands_valid=0, port_commands_payload=0, job_window_base=0,
                job_window_limit=device.memory.bytes, job_stop=0, job_context=5, job_epoch=9,
                **{f"memory_{i}_{name}": 0 for i in range(device.ports)
                   for name in ("requests_ready", "responses_valid", "responses_payload", "write_data_ready")
                   if hasattr(dut, f"memory_{i}_{name}")})
    sent = done = cycle = 0
    offered = False
    while done < len(todo):
        assert cycle < 20_000, f"{done} of {len(todo)} commands done, {sent} sent"
        offered = offered or random.random() < 0.7  # a valid stays until it is taken
        dut.port_commands_valid.value = int(offered and sent < len(raws))
        if sent < len(raws):
            dut.port_commands_payload.value = raws[sent]
        for memory in memories:
            memory.drive(cycle)
        await settled(dut)
        assert not value(dut.port_fault_valid)
        if value(dut.port_commands_valid) and value(dut.port_commands_ready):
            sent, offered = sent + 1, False
        done += value(dut.port_done)
        if value(dut.write_valid):
            target = Target(value(dut.write_target))
            size, data = shapes[target].bytes, value(dut.write_data)
            for block in range(value(dut.write_count)):
                address = value(dut.write_address) + block * value(dut.write_pitch)
                got[target][address] = (data >> 8 * size * block & (1 << 8 * size) - 1).to_bytes(size, "little")
        for memory in memories:
            memory.sample(cycle)
        await edge(dut)
        cycle += 1
    for target, blocks in expected.items():
        assert got[target] == blocks, target.name
    note(cycles=cycle, blocks=sum(map(len, got.values())))
