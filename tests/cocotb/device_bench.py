"""The whole device's exported Verilog, driven through its AXI ports by masters that are not ours."""

import cocotb
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster

from ringloom.hw.config import BEAT_BYTES
from ringloom.hw.isa import RECORD_BYTES
from ringloom.hw.regmap import MAGIC, control_register, tile_register
from tests.support.cocotb_bench import config, edge, note, settings, settled, start, value
from tests.support.device import COMPLETION, JOB, C
from tests.support.job_stream import LIMIT, check, works


async def storage(dut, port: int, contents: bytearray) -> None:
    """Storage port ``port`` of tile 0 on ``contents``, as StoragePort says."""
    def wire(name):
        return getattr(dut, f"storage0_{port}_{name}")

    while True:
        await settled(dut)
        asked = value(dut.rst) == 0 and value(wire("enable"))
        if asked:
            address = value(wire("address")) * BEAT_BYTES
            answer = int.from_bytes(contents[address:address + BEAT_BYTES], "little")
            if value(wire("write")):
                data, strobe = value(wire("write_data")).to_bytes(BEAT_BYTES, "little"), value(wire("strobe"))
                for lane in range(BEAT_BYTES):
                    if strobe >> lane & 1:
                        contents[address + lane] = data[lane]
        await edge(dut)
        if asked:
            wire("read_data").value = answer


def masters(dut):
    return (AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst),
            AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst))


@cocotb.test()
async def jobs_and_memory_window(dut):
    device = config()
    contents = bytearray(device.memory.bytes)
    registers, window = masters(dut)
    for port in range(device.ports):
        getattr(dut, f"storage0_{port}_read_data").value = 0
        cocotb.start_soon(storage(dut, port, contents))
    await start(dut)

    assert await registers.read_dword(control_register("id")) == MAGIC
    await registers.write_dword(control_register("irq_enable"), 1)
    cycles, results = [], []
    for index, work in enumerate(works(device, settings()["seed"], settings()["jobs"])):
        for address, data in work.writes.items():
            await window.write(address, data)
        await registers.write_dword(tile_register(0, "job_low"), JOB)
        await registers.write_dword(control_register("doorbell"), 1)
        for _ in range(LIMIT):
            await settled(dut)
            if value(dut.irq):
                break
            await edge(dut)
        else:
            raise AssertionError(f"job {index}: no interrupt in {LIMIT} cycles")
        record = (await window.read(COMPLETION, RECORD_BYTES)).data
        result = (await window.read(C - 64, len(work.result))).data
        assert bytes(contents[C - 64:work.end]) == result, "the window and storage hold different bytes"
        fields = check(work, record, result, index)
        cycles.append(fields["end"] - fields["start"])
        results.append(bytes(result).hex())
        await registers.write_dword(control_register("irq_status"), 1)
    note(cycles=cycles, results=results)


@cocotb.test()
async def window_takes_any_alignment(dut):
    device = config()
    contents = bytearray(device.memory.bytes)
    _, window = masters(dut)
    for port in range(device.ports):
        cocotb.start_soon(storage(dut, port, contents))
    await start(dut)
    for address, size in ((4064, 65), (4095, 2), (1, 1), (31, 34), (8191, 4098), (100, 0)):
        data = bytes((address + i) * 7 & 0xFF for i in range(size))
        before = bytes(contents)
        await window.write(address, data)
        assert bytes(contents) == before[:address] + data + before[address + size:]
        assert (await window.read(address, size)).data == data
