"""Finding, caching and loading the native library, and every way in which that can go wrong."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from libraries import (
    EXPORT,
    assert_unavailable,
    assert_works,
    cached_file,
    damage,
    fake_compiler,
    find,
    needs_compiler,
    write_sources,
)

from mufuru.kernels import build, library
from mufuru.kernels.library import Found, MuFuRUKernelWarning

pytestmark = [needs_compiler, pytest.mark.usefixtures("alone")]


def test_built_once_then_from_the_cache(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = fake_compiler(monkeypatch, tmp_path, "")
    first, second = find(tmp_path, sources), find(tmp_path, sources)
    assert_works(first, "built")
    assert_works(second, "cache")
    assert len(uses.read_text().splitlines()) == 3  # two sources and one link
    assert first.status.path == second.status.path == cached_file(tmp_path)
    assert first.status.compiler == str(tmp_path / "fake-c++")
    assert first.status.seconds > 0
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("change", ["source", "header", "compiler", "torch", "flags"])
def test_cache_key(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    find(tmp_path, sources)
    if change in ("source", "header"):
        file = sources / {"source": "toy.cpp", "header": "toy.h"}[change]
        file.write_text(file.read_text() + "// new\n")
    elif change == "compiler":
        fake_compiler(monkeypatch, tmp_path, "")
    elif change == "torch":
        monkeypatch.setattr(torch, "__version__", "99.0")
    else:
        monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DNEW"))
    assert_works(find(tmp_path, sources), "built")


def test_cache_key_of_another_abi(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = library._source_key(sources)
    monkeypatch.setattr(library, "ABI", 99)
    assert library._source_key(sources) != before


def test_package_library_comes_first(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    build.compile_library(sources, package / "_native.abi.so", build.find_compiler())
    monkeypatch.setenv("MUFURU_BUILD", "0")
    found = library.find(package, sources, tmp_path / "cache")
    assert_works(found, "wheel")
    assert found.status.path == package / "_native.abi.so"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("flaw", ["not a library", "other abi", "no abi"])
def test_broken_package_library_is_passed_over(tmp_path: Path, sources: Path, flaw: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    if flaw == "not a library":
        (package / "_native.abi.so").write_bytes(b"\x7fELF and no more")
    else:
        text = f"{EXPORT} int {'mufuru_abi' if flaw == 'other abi' else 'something'}() {{ return 99; }}\n"
        other = write_sources(tmp_path / "other", {"other.cpp": text})
        build.compile_library(other, package / "_native.abi.so", build.find_compiler())
    found = library.find(package, sources, tmp_path / "cache")
    assert_works(found, "built", "the library of the installed package does not load")


@pytest.mark.parametrize("flaw", ["truncated", "empty", "one byte"])
def test_damaged_cache_is_rebuilt(tmp_path: Path, sources: Path, flaw: str) -> None:
    find(tmp_path, sources)
    content = cached_file(tmp_path).read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    damage(cached_file(tmp_path), {"truncated": content[:middle], "empty": b"", "one byte": flipped}[flaw])
    assert_works(find(tmp_path, sources), "built", "it is damaged")
    assert_works(find(tmp_path, sources), "cache")


def test_cached_file_of_another_abi_is_rebuilt(tmp_path: Path, sources: Path) -> None:
    find(tmp_path, sources)
    good = cached_file(tmp_path)
    other = write_sources(tmp_path / "other", {"other.cpp": f"{EXPORT} int mufuru_abi() {{ return 99; }}\n"})
    build.compile_library(other, tmp_path / "other.so", build.find_compiler())
    key = good.stem.rsplit("-", 1)[0]
    good.unlink()
    library._store(tmp_path / "other.so", good.parent, key)
    assert_works(find(tmp_path, sources), "built", f"mufuru_abi is 99, expected {library.ABI}")
    assert_works(find(tmp_path, sources), "cache")


def test_build_of_another_abi_is_unavailable(tmp_path: Path) -> None:
    wrong = write_sources(tmp_path / "wrong", {"wrong.cpp": f"{EXPORT} int mufuru_abi() {{ return 99; }}\n"})
    assert_unavailable(find(tmp_path, wrong), f"mufuru_abi is 99, expected {library.ABI}")


@pytest.mark.parametrize("place", ["file/cache", "relative"])
def test_unusable_cache_builds_for_this_process(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    found = find(tmp_path, sources, tmp_path / place if place != "relative" else Path(place))
    assert_works(found, "built", "built for this process alone")
    assert found.status.path is not None
    assert not found.status.path.exists()
    assert not (tmp_path / "relative").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_cache_that_cannot_be_written_still_gives_what_it_has(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(tmp_path, sources)

    def refuse(*args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(library, "_make_folder", refuse)
    assert_works(find(tmp_path, sources), "cache")


def test_library_that_may_not_run_from_the_cache_runs_from_elsewhere(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = [], library._open

    def open_as_on_noexec(path: Path) -> Any:
        opened.append(path)
        if tmp_path / "cache" in path.parents:
            raise OSError("failed to map segment from shared object")
        return real(path)

    monkeypatch.setattr(library, "_open", open_as_on_noexec)
    assert_works(find(tmp_path, sources), "built", "failed to map segment")
    assert len(opened) == 2


@pytest.mark.parametrize("what", ["folder", "parent"])
def test_folder_that_others_can_write_is_refused(tmp_path: Path, sources: Path, what: str) -> None:
    find(tmp_path, sources)
    (tmp_path / "cache" / ("kernels" if what == "folder" else "")).chmod(0o777)
    assert_works(find(tmp_path, sources), "built", "can be written by other users")


def test_sticky_folder_above_is_fine(tmp_path: Path, sources: Path) -> None:
    find(tmp_path, sources)
    (tmp_path / "cache").chmod(0o1777)
    assert_works(find(tmp_path, sources), "cache")


def test_file_that_others_can_write_is_replaced(tmp_path: Path, sources: Path) -> None:
    find(tmp_path, sources)
    cached_file(tmp_path).chmod(0o666)
    assert_works(find(tmp_path, sources), "built", "can be written by other users")
    assert_works(find(tmp_path, sources), "cache")


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_belongs_to_another_user_is_refused(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    find(tmp_path, sources)
    path = cached_file(tmp_path) if what == "file" else cached_file(tmp_path).parent
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)
    assert_works(find(tmp_path, sources), "built", "belongs to another user")


@pytest.mark.parametrize("private", [True, False])
def test_folder_of_a_group(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, private: bool) -> None:
    find(tmp_path, sources)
    (tmp_path / "cache").chmod(0o770)
    monkeypatch.setattr(library, "_is_private", lambda group: private)
    found = find(tmp_path, sources)
    assert_works(found, *(("cache",) if private else ("built", "can be written by other users")))


@pytest.mark.parametrize(
    ("own_group", "name", "members", "private"),
    [(7, "ann", [], True), (7, "ann", ["ann"], True), (7, "ann", ["bob"], False), (7, "staff", [], False),
     (8, "ann", [], False)],
)  # fmt: skip
def test_private_group(
    monkeypatch: pytest.MonkeyPatch, own_group: int, name: str, members: list[str], private: bool
) -> None:
    user = SimpleNamespace(pw_name="ann", pw_gid=own_group)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: SimpleNamespace(gr_name=name, gr_mem=members))
    assert library._is_private(7) == private


def test_new_folders_and_files_are_for_the_user_alone(tmp_path: Path, sources: Path) -> None:
    before = os.umask(0o002)
    try:
        find(tmp_path, sources, tmp_path / "deep" / "cache")
        found = find(tmp_path, sources, tmp_path / "deep" / "cache")
    finally:
        os.umask(before)
    assert_works(found, "cache")
    for path in (tmp_path / "deep").rglob("*"):
        assert path.suffix == ".lock" or path.stat().st_mode & 0o077 == 0


def test_left_over_of_a_killed_process_is_removed(tmp_path: Path, sources: Path) -> None:
    find(tmp_path, sources)
    path = cached_file(tmp_path)
    left_over = path.with_name(f".{path.name}.x1y2.tmp")
    left_over.write_bytes(b"half")
    path.unlink()
    assert_works(find(tmp_path, sources), "built")
    assert not left_over.exists()


@pytest.mark.parametrize("compiler", ["present", "missing"])
def test_building_can_be_forbidden(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("MUFURU_BUILD", "0")
    assert_unavailable(find(tmp_path, sources), "MUFURU_BUILD=0 forbids building it; unset MUFURU_BUILD")
    assert not (tmp_path / "cache").exists()
    monkeypatch.delenv("MUFURU_BUILD")
    find(tmp_path, sources)
    monkeypatch.setenv("MUFURU_BUILD", "0")
    if compiler == "missing":
        monkeypatch.setenv("CXX", "/no/such/c++")
    assert_works(find(tmp_path, sources), "cache")


def test_cached_library_outlives_its_compiler(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(tmp_path, sources)
    monkeypatch.setenv("CXX", "/no/such/c++")
    assert_works(find(tmp_path, sources), "cache")


def test_no_sources(tmp_path: Path) -> None:
    assert_unavailable(find(tmp_path, tmp_path / "nowhere"), "no C++ sources in")


def test_lock_is_waited_for_only_so_long(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(tmp_path, sources)
    cached_file(tmp_path).unlink()
    (lock,) = (tmp_path / "cache" / "kernels").glob("*.lock")
    monkeypatch.setattr(library, "LOCK_TIMEOUT", 0.2)
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert_works(find(tmp_path, sources), "built")


def test_two_processes_build_once(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the first to get the lock compiles only when the other has asked for the compiler's version, just before the lock
    uses = fake_compiler(monkeypatch, tmp_path, f"while [ ! -e '{tmp_path}/go' ]; do sleep 0.05; done")
    code = (
        "import sys; from pathlib import Path; from mufuru.kernels import library\n"
        "found = library.find(Path('nowhere'), Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "print(found.library.toy_answer(), found.status.state, found.status.reason)"
    )
    command = [sys.executable, "-c", code, str(sources), str(tmp_path / "cache")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    versions = tmp_path / "uses.version"
    while not (versions.exists() and len(versions.read_text()) == 2 and len(uses.read_text().splitlines()) == 2):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    (tmp_path / "go").touch()
    printed = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sorted(printed) == ["42 built", "42 cache"]
    assert len(uses.read_text().splitlines()) == 3


def test_import_neither_builds_nor_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = fake_compiler(monkeypatch, tmp_path, "exit 1")
    code = "import mufuru; from mufuru.kernels import library; assert library._found is None"
    cache = {"MUFURU_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **cache}, check=True)
    assert uses.read_text() == ""
    assert not (tmp_path / "cache").exists()


def test_load_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = library.find(tmp_path, tmp_path / "nowhere", tmp_path / "cache")
    monkeypatch.setattr(library, "find", lambda: missing)
    assert library.status().state == "unavailable"
    with pytest.warns(MuFuRUKernelWarning, match="the native kernel is not available.*no C\\+\\+ sources"):
        assert library.load() is None
    assert library.load() is None
    library.reset()
    with pytest.warns(MuFuRUKernelWarning):
        library.load()


def test_load_finds_once_from_many_threads(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    found = find(tmp_path, sources)

    def slow_find() -> Found:
        calls.append(1)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(library, "find", slow_find)
    loaded: list[Any] = []
    threads = [threading.Thread(target=lambda: loaded.append(library.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(loaded) == 8
    assert len(set(map(id, loaded))) == 1
    assert library.status().state == "built"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_is_not_stuck_behind_a_lock_of_its_parent() -> None:
    with library._guard, warnings.catch_warnings():
        # newer Pythons warn of fork in a process with threads, which is the very case tested
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            os._exit(0 if library._guard.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"MUFURU_CACHE": "/a/b", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"MUFURU_CACHE": "~/b", "HOME": "/h"}, "/h/b"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/mufuru"),
        ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/mufuru"),
        ({"HOME": "/h"}, "/h/.cache/mufuru"),
    ],
)
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: str) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert library.default_cache() == Path(expected)
