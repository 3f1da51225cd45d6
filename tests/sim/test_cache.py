"""The build cache: hits, broken entries, processes that build at once, and one that is killed."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from ringloom.sim.verilated.cache import Cache, cache_folder, digest


def _making(log: Path, content: bytes = b"built", pause: float = 0.0):
    def make(scratch: Path) -> Path:
        with open(log, "a") as file:
            file.write("x")
        time.sleep(pause)
        made = scratch / "made"
        made.write_bytes(content)
        return made
    return make


def test_second_get_does_not_build(tmp_path):
    cache, log = Cache(tmp_path / "cache"), tmp_path / "log"
    first = cache.get("a", _making(log))
    assert cache.get("a", _making(log)) == first and first.read_bytes() == b"built"
    assert log.read_text() == "x"


@pytest.mark.parametrize("damage", ["truncate", "change", "no note", "empty note", "remove"])
def test_broken_entry_is_built_again(tmp_path, damage):
    cache, log = Cache(tmp_path / "cache"), tmp_path / "log"
    path = cache.get("a", _making(log))
    note = path.with_name("a.sha256")
    match damage:
        case "truncate":
            path.write_bytes(path.read_bytes()[:2])
        case "change":
            path.write_bytes(b"BUILT")
        case "no note":
            note.unlink()
        case "empty note":
            note.write_text("")
        case "remove":
            path.unlink()
    assert cache.get("a", _making(log)).read_bytes() == b"built"
    assert log.read_text() == "xx"


def test_failed_build_leaves_nothing(tmp_path):
    cache, log = Cache(tmp_path / "cache"), tmp_path / "log"

    def fail(scratch: Path) -> Path:
        (scratch / "half").write_text("half")
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        cache.get("a", fail)
    assert not (cache.folder / "a").exists() and not (cache.folder / "a.build").exists()
    assert cache.get("a", _making(log)).read_bytes() == b"built"


def test_processes_at_once_build_once(tmp_path):
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=Cache(tmp_path / "cache").get, args=("a", _making(log, pause=0.3)))
               for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert log.read_text() == "x"


def test_killed_build_is_taken_up_by_the_next(tmp_path):
    cache, log = Cache(tmp_path / "cache"), tmp_path / "log"
    worker = multiprocessing.get_context("fork").Process(target=cache.get, args=("a", _making(log, pause=60)))
    worker.start()
    end = time.monotonic() + 20
    while not log.exists() and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert (cache.folder / "a.build").exists(), "the killed build left its scratch folder"
    start = time.monotonic()
    assert cache.get("a", _making(log)).read_bytes() == b"built"
    assert time.monotonic() - start < 5, "the lock of the killed process held the next one up"
    assert not (cache.folder / "a.build").exists()


def test_leftovers_of_other_entries_are_swept(tmp_path):
    cache, log = Cache(tmp_path / "cache"), tmp_path / "log"
    left = cache.folder / "other.build"
    left.mkdir(parents=True)
    (left / "half").write_text("half")

    def make(scratch: Path) -> Path:
        assert not left.exists()
        inner = cache.get("inner", _making(log))  # a build inside a build sweeps nothing that is in work
        assert scratch.exists() and inner.exists()
        return _making(log)(scratch)

    assert cache.get("a", make).read_bytes() == b"built"
    assert [path.name for path in cache.folder.glob("*.build")] == []


def test_folder_and_key(monkeypatch, tmp_path):
    monkeypatch.setenv("RINGLOOM_CACHE", str(tmp_path / "here"))
    assert cache_folder() == (tmp_path / "here").resolve()
    monkeypatch.delenv("RINGLOOM_CACHE")
    assert cache_folder().name == "ringloom"
    assert digest("ab", "c") != digest("a", "bc")
