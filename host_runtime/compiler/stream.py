"""Operations turned into command bytes: dependencies become semaphores, addresses stay open until a job is bound."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ringloom.hw.isa import LOAD, MATMUL, RECORD_BYTES, RING, STORE, VERSION, Opcode

from .gemm import Buffer
from .schedule import Operation

__all__ = ["Stream", "emit", "SEMAPHORE_OF", "ARRIVED", "TAKEN", "semaphore_name"]

SEMAPHORE_OF = {pair: i for i, pair in enumerate([
    ("load", "matmul"), ("matmul", "load"), ("matmul", "store"), ("store", "matmul"), ("load", "store"),
    ("store", "load"), ("load", "ring"), ("ring", "load"), ("matmul", "ring"), ("ring", "matmul"), ("store", "ring"),
    ("ring", "store"),
])}
"""One semaphore for each pair (who signals, who waits). An engine's commands end in order, so that the signal of
one command says that all before it have ended too; one semaphore a pair is enough, and each wait takes one signal."""

ARRIVED, TAKEN = len(SEMAPHORE_OF), len(SEMAPHORE_OF) + 1
"""Semaphores that the neighbours in a pipeline signal: a micro-batch lies in this tile's memory; the next tile has
taken one."""

_RECORDS = {"load": (Opcode.LOAD, LOAD), "matmul": (Opcode.MATMUL, MATMUL), "store": (Opcode.STORE, STORE),
            "ring": (Opcode.RING, RING)}
_ADDRESS_WORD = 2      # LOAD and STORE keep their address in the third 64-bit word, and RING its source
_DESTINATION_WORD = 3  # RING alone
_NUMBER_WORD = 20      # RING's number, in 16-bit words


def semaphore_name(number: int) -> str:
    """What semaphore ``number`` of a compiled stream stands for."""
    for (producer, consumer), i in SEMAPHORE_OF.items():
        if i == number:
            return f"semaphore {number} ({producer.upper()} ended, for {consumer.upper()})"
    names = {ARRIVED: "a micro-batch of the tile before", TAKEN: "room at the next tile"}
    return f"semaphore {number}" + (f" ({names[number]})" if number in names else "")


@dataclass(frozen=True)
class Stream:
    """Command records and, for each, the buffer its address counts from (-1: none).

    destinations: the same for the second address of a RING command. collectives: how many of them there are.
    """

    records: np.ndarray
    buffers: np.ndarray
    destinations: np.ndarray
    collectives: int

    @property
    def commands(self) -> int:
        return len(self.buffers)

    def bind(self, addresses: Mapping[Buffer, int], collective: int = 0) -> bytes:
        """The command bytes with every buffer at its address, and collectives numbered from ``collective`` on."""
        bases = np.array([addresses.get(buffer, 0) for buffer in Buffer] + [0], np.int64)
        bound = self.records.copy()
        bound.view("<i8")[:, _ADDRESS_WORD] += np.where(self.buffers >= 0, bases[self.buffers], 0)
        if self.collectives:
            ring = bound[:, 1] == Opcode.RING
            bound.view("<i8")[:, _DESTINATION_WORD] += np.where(self.destinations >= 0, bases[self.destinations], 0)
            bound.view("<u2")[ring, _NUMBER_WORD] += np.uint16(collective)
        return bound.tobytes()


def emit(operations: list[Operation]) -> Stream:
    """Encode ``operations``; a wait is left out where an earlier command of the same engine implies it."""
    known: dict[tuple[str, str], int] = {}
    waits: list[list[int]] = []
    signals: list[list[tuple[int, int | None]]] = [[(s, tile) for tile, s in o.tells] for o in operations]
    for operation in operations:
        mine = list(operation.waits)
        for producer in _RECORDS:
            if producer == operation.engine:
                continue  # commands of one engine are in order anyway
            need = max((i for i in operation.after if operations[i].engine == producer), default=-1)
            pair = (producer, operation.engine)
            if need > known.get(pair, -1):
                known[pair] = need
                mine.append(SEMAPHORE_OF[pair])
                signals[need].append((SEMAPHORE_OF[pair], None))
        waits.append(mine)

    raw = bytearray()
    for operation, wait, signal in zip(operations, waits, signals, strict=True):
        assert len(wait) <= 2 and len(signal) <= 2, "a command waits for two semaphores and signals two"
        opcode, record = _RECORDS[operation.engine]
        header = {"version": VERSION, "opcode": opcode}
        for i, semaphore in enumerate(wait):
            header |= {f"wait{i}_semaphore": semaphore, f"wait{i}_enable": 1, f"wait{i}_count": 1}
        for i, (semaphore, tile) in enumerate(signal):
            header |= {f"signal{i}_semaphore": semaphore, f"signal{i}_enable": 1}
            if tile is not None:
                header |= {f"signal{i}_remote": 1, f"signal{i}_tile": tile}
        raw += record.encode(**header, **operation.fields)

    def places(buffers: list[Buffer | None]) -> np.ndarray:
        return np.array([-1 if buffer is None else buffer for buffer in buffers], np.int64)

    return Stream(np.frombuffer(bytes(raw), np.uint8).reshape(-1, RECORD_BYTES),
                  places([o.buffer for o in operations]), places([o.destination for o in operations]),
                  sum(o.engine == "ring" for o in operations))
