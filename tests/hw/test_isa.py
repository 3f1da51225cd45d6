"""The command set: every field round-trips on its own bits, values that do not fit are refused by name."""

import random

import pytest

from ringloom.hw import isa

KINDS = {r.name: r for r in isa.RECORDS}


@pytest.mark.parametrize("name", KINDS)
def test_fields_do_not_overlap(name):
    """Each field alone sets exactly the bits at its place; together they cover each bit once."""
    record, seen = KINDS[name], 0
    for field in record.fields:
        low, high = (-(1 << field.bits - 1), -1) if field.signed else (0, (1 << field.bits) - 1)
        word = int.from_bytes(record.encode(**{field.name: high}), "little")
        assert word == ((1 << field.bits) - 1) << field.offset, field.name
        assert not seen & word, field.name
        seen |= word
        assert record.decode(record.encode(**{field.name: low}))[field.name] == low
    assert seen < 1 << 8 * record.bytes


@pytest.mark.parametrize("name", KINDS)
def test_round_trip(name):
    seed = len(name)
    print("seed", seed)
    chance, record = random.Random(seed), KINDS[name]
    for _ in range(200):
        values = {f.name: chance.randrange(-(1 << f.bits - 1), 1 << f.bits - 1) if f.signed
                  else chance.randrange(1 << f.bits) for f in record.fields}
        raw = record.encode(**values)
        assert len(raw) == record.bytes and record.decode(raw) == values


@pytest.mark.parametrize("name", KINDS)
def test_layout_agrees_with_encoder(name):
    """The Amaranth layout and the Python encoder put every field at the same bits with the same sign."""
    from amaranth.lib import data
    record = KINDS[name]
    assert record.layout.size == 8 * record.bytes
    for field in record.fields:
        place = record.layout[field.name]
        assert (place.offset, place.width) == (field.offset, field.bits)
        low = -1 if field.signed else (1 << field.bits) - 1
        constant = data.Const(record.layout, int.from_bytes(record.encode(**{field.name: low}), "little"))
        assert constant[field.name] == low


def test_refusals_name_field_and_range():
    with pytest.raises(ValueError, match=r"LOAD\.rows = 65536: must lie in 0\.\.65535"):
        isa.LOAD.encode(rows=1 << 16)
    with pytest.raises(ValueError, match=r"MATMUL\.a_zero_point = -32769"):
        isa.MATMUL.encode(a_zero_point=-32769)
    with pytest.raises(ValueError, match="STORE has no field 'row'"):
        isa.STORE.encode(row=1)


def test_commands_share_their_header():
    """What the command processor reads lies at the same place in every command and in the descriptor."""
    for record in (isa.LOAD, isa.MATMUL, isa.STORE):
        places = {f.name: (f.offset, f.bits) for f in record.fields}
        assert all(places[f.name] == (f.offset, f.bits) for f in isa.HEADER.fields)
        assert all(offset >= 12 * 8 for name, (offset, _) in places.items()
                   if name not in {f.name for f in isa.HEADER.fields})
    places = {f.name: f.offset for f in isa.DESCRIPTOR.fields}
    assert (places["version"], places["opcode"]) == (0, 8)


def test_record_of():
    assert isa.record_of(isa.Opcode.STORE) is isa.STORE
    assert isa.record_of(1) is isa.DESCRIPTOR
    for opcode in (0, 6, 255):
        with pytest.raises(ValueError, match=f"opcode {int(opcode)}"):
            isa.record_of(opcode)


def test_one_number_a_name():
    for members in (isa.Opcode, isa.Target, isa.Rounding, isa.Code, isa.Status):
        assert len({int(m) for m in members}) == len([*members])
