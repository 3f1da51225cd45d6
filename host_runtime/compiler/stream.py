"""Operations turned into command bytes: dependencies become semaphores, addresses stay open until a job is bound."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ringloom.hw.isa import LOAD, MATMUL, RECORD_BYTES, STORE, VERSION, Opcode

from .gemm import Buffer
from .schedule import Operation

__all__ = ["Stream", "emit", "SEMAPHORE_OF", "semaphore_name"]

SEMAPHORE_OF = {pair: i for i, pair in enumerate([
    ("load", "matmul"), ("matmul", "load"), ("matmul", "store"), ("store", "matmul"), ("load", "store"),
    ("store", "load"),
])}
"""One semaphore for each pair (who signals, who waits). An engine's commands end in order, so that the signal of
one command says that all before it have ended too; one semaphore a pair is enough, and each wait takes one signal."""

_RECORDS = {"load": (Opcode.LOAD, LOAD), "matmul": (Opcode.MATMUL, MATMUL), "store": (Opcode.STORE, STORE)}
_ADDRESS_WORD = 2  # LOAD and STORE keep their address in the third 64-bit word


def semaphore_name(number: int) -> str:
    """What semaphore ``number`` of a compiled stream stands for."""
    for (producer, consumer), i in SEMAPHORE_OF.items():
        if i == number:
            return f"semaphore {number} ({producer.upper()} ended, for {consumer.upper()})"
    return f"semaphore {number}"


@dataclass(frozen=True)
class Stream:
    """Command records and, for each, the buffer its address counts from (-1: none)."""

    records: np.ndarray
    buffers: np.ndarray

    @property
    def commands(self) -> int:
        return len(self.buffers)

    def bind(self, addresses: Mapping[Buffer, int]) -> bytes:
        """The command bytes with every buffer at its address."""
        bases = np.array([addresses.get(buffer, 0) for buffer in Buffer] + [0], np.int64)
        bound = self.records.copy()
        bound.view("<i8")[:, _ADDRESS_WORD] += np.where(self.buffers >= 0, bases[self.buffers], 0)
        return bound.tobytes()


def emit(operations: list[Operation]) -> Stream:
    """Encode ``operations``; a wait is left out where an earlier command of the same engine implies it."""
    known: dict[tuple[str, str], int] = {}
    waits: list[list[int]] = []
    signals: list[list[int]] = [[] for _ in operations]
    for operation in operations:
        mine = []
        for producer in _RECORDS:
            if producer == operation.engine:
                continue  # commands of one engine are in order anyway
            need = max((i for i in operation.after if operations[i].engine == producer), default=-1)
            pair = (producer, operation.engine)
            if need > known.get(pair, -1):
                known[pair] = need
                mine.append(SEMAPHORE_OF[pair])
                signals[need].append(SEMAPHORE_OF[pair])
        waits.append(mine)

    raw = bytearray()
    for operation, wait, signal in zip(operations, waits, signals, strict=True):
        opcode, record = _RECORDS[operation.engine]
        header = {"version": VERSION, "opcode": opcode}
        for i, semaphore in enumerate(wait):
            header |= {f"wait{i}_semaphore": semaphore, f"wait{i}_enable": 1, f"wait{i}_count": 1}
        for i, semaphore in enumerate(signal):
            header |= {f"signal{i}_semaphore": semaphore, f"signal{i}_enable": 1}
        raw += record.encode(**header, **operation.fields)
    buffers = np.array([-1 if o.buffer is None else o.buffer for o in operations], np.int64)
    return Stream(np.frombuffer(bytes(raw), np.uint8).reshape(-1, RECORD_BYTES), buffers)
