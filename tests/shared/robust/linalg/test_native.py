"""Compiling: chosen by the environment, cached, and never a reason to fail."""

import gc
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.linalg import native, prebuild, processors


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("RAMPART_KERNELS", "auto")
    monkeypatch.setattr(native, "PREBUILT", tmp_path / "prebuilt")
    native._build.cache_clear()
    yield tmp_path
    native._build.cache_clear()


def needs_compiler() -> None:
    if native.compiler() is None:
        pytest.skip("no C compiler is on the path")


def median() -> float:
    return aggregate(torch.tensor([[1.0], [2.0], [9.0]]), "median").item()


@pytest.mark.processes
def test_the_library_is_built_once_and_kept(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    assert native.backend() == "native" and median() == 2
    built = list((fresh / "rampart").glob("kernels-*.so"))
    assert len(built) == 1
    assert stat.S_IMODE((fresh / "rampart").stat().st_mode) == 0o700
    native._build.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert native.backend() == "native" and median() == 2


@pytest.mark.processes
def test_another_source_is_another_library(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    assert native.backend() == "native"
    changed = fresh / "kernels.c"
    changed.write_text(native.SOURCE.read_text() + "/* changed */\n")
    monkeypatch.setattr(native, "SOURCE", changed)
    native._build.cache_clear()
    assert native.backend() == "native"
    assert len(list((fresh / "rampart").glob("kernels-*.so"))) == 2


@pytest.mark.parametrize("fault", ["none", "broken", "slow", "unreadable"])
def test_without_a_working_compiler_torch_does_it_and_says_why(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        if fault == "slow":
            raise subprocess.TimeoutExpired("cc", native.SECONDS)
        if fault == "unreadable":
            raise PermissionError("cc")
        return subprocess.CompletedProcess("cc", 1, "", "internal compiler error")

    monkeypatch.setattr(native, "compiler", lambda: None if fault == "none" else "cc")
    monkeypatch.setattr(subprocess, "run", run)
    reason = {"none": "no C compiler", "broken": "internal compiler error"}
    assert native.backend().startswith("torch: ")
    assert reason.get(fault, "") in native.backend()
    assert median() == 2


def test_a_library_that_cannot_be_loaded_is_no_reason_to_fail(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(_compiler: str, path: Path, _real: str, _wide: str) -> None:
        path.write_bytes(b"not a library")

    monkeypatch.setattr(native, "compiler", lambda: "cc")
    monkeypatch.setattr(native, "compile_library", touch)
    assert native.backend().startswith("torch: ") and median() == 2


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMPART_KERNELS", "torch")
    assert native.backend() == "torch: RAMPART_KERNELS=torch" and median() == 2
    monkeypatch.setenv("RAMPART_KERNELS", "native")
    monkeypatch.setattr(native, "compiler", lambda: None)
    with pytest.raises(ConfigurationError, match="RAMPART_KERNELS=native, but no C compiler"):
        median()
    monkeypatch.setenv("RAMPART_KERNELS", "fast")
    with pytest.raises(ConfigurationError, match="auto, native or torch, not 'fast'"):
        median()


def test_a_folder_that_others_can_write_to_holds_no_code(fresh: Path) -> None:
    folder = fresh / "rampart"
    folder.mkdir()
    folder.chmod(0o777)
    assert native._cache() != folder


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries of this machine's levels, which take seconds to compile."""
    needs_compiler()
    folder = tmp_path_factory.mktemp("libraries") / "prebuilt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "PREBUILT", folder)
        assert prebuild.main() == 0
    return folder


@pytest.fixture
def built_in_advance(fresh: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The libraries, on a machine that no longer has a compiler."""
    shutil.copytree(libraries, fresh / "prebuilt")
    monkeypatch.setattr(native, "compiler", lambda: None)
    return sorted((fresh / "prebuilt").iterdir())


@pytest.mark.processes
def test_kernels_built_in_advance_need_no_compiler(
    fresh: Path, built_in_advance: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = [one for one in processors.LEVELS.values() if one.machine == platform.machine()]
    assert len(built_in_advance) == len(machine) * len(native.PAIRS)
    for level in processors.levels():
        with monkeypatch.context() as patch:
            patch.setattr(processors, "levels", lambda level=level: [level])
            native._build.cache_clear()
            assert native.backend() == "native" and median() == 2, level
    assert not (fresh / "rampart").exists()


@pytest.mark.processes
def test_a_processor_without_a_level_uses_torch(
    built_in_advance: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built_in_advance
    monkeypatch.setattr(processors, "features", frozenset)
    assert native.backend() == "torch: no C compiler is on the path" and median() == 2


@pytest.mark.processes
def test_kernels_of_another_source_are_not_loaded(
    fresh: Path, built_in_advance: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built_in_advance
    changed = fresh / "kernels.c"
    changed.write_text(native.SOURCE.read_text() + "/* changed */\n")
    monkeypatch.setattr(native, "SOURCE", changed)
    assert native.backend().startswith("torch: ")


@pytest.mark.processes
def test_levels_differ_by_rounding_alone(
    built_in_advance: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built_in_advance
    rows = torch.randn(11, 1009, generator=torch.Generator().manual_seed(1))
    results = []
    for level in processors.levels():
        monkeypatch.setattr(processors, "levels", lambda level=level: [level])
        native._build.cache_clear()
        results.append(aggregate(rows, "geometric_median"))
    for one in results:
        torch.testing.assert_close(one, results[0], rtol=1e-6, atol=1e-7)


def test_without_a_compiler_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert prebuild.main() == 1
    assert "no C compiler" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "missing", "expected"),
    [
        ("x86_64", None, ["x86-64-v4", "x86-64-v3"]),
        ("x86_64", "avx512bw", ["x86-64-v3"]),
        ("x86_64", "fma", []),
        ("aarch64", None, ["arm64"]),
        ("riscv64", None, []),
    ],
)
def test_a_processor_gets_what_it_can_run(
    machine: str, missing: str | None, expected: list[str]
) -> None:
    everything = frozenset().union(*(one.features for one in processors.LEVELS.values()))
    assert processors.levels(machine, everything - {missing}) == expected


@pytest.mark.processes
def test_calls_leave_no_reference_cycles(fresh: Path) -> None:
    """A worker that collects garbage rarely would otherwise grow with every call."""
    needs_compiler()
    median()  # The library is loaded.
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            median()
        assert gc.collect() < 10
    finally:
        gc.enable()
