"""Compiled kernels: selected by the environment, cached, and optional."""

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
    """An empty cache folder; no library is loaded yet."""
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
def test_library_is_compiled_once_and_cached(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    assert native.backend() == "native" and median() == 2
    built = list((fresh / "rampart").glob("kernels-*.so"))
    assert len(built) == 1
    assert stat.S_IMODE((fresh / "rampart").stat().st_mode) == 0o700
    native._build.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert native.backend() == "native" and median() == 2


@pytest.mark.processes
def test_changed_source_is_compiled_to_a_separate_library(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_compiler()
    assert native.backend() == "native"
    changed = fresh / "kernels.c"
    changed.write_text(native.SOURCE.read_text() + "/* changed */\n")
    monkeypatch.setattr(native, "SOURCE", changed)
    native._build.cache_clear()
    assert native.backend() == "native"
    assert len(list((fresh / "rampart").glob("kernels-*.so"))) == 2


@pytest.mark.parametrize("fault", ["none", "broken", "slow", "unreadable"])
def test_backend_falls_back_to_torch_with_a_reason_if_compilation_fails(
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


def test_backend_falls_back_to_torch_if_the_library_cannot_be_loaded(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(_compiler: str, path: Path, _real: str, _wide: str) -> None:
        path.write_bytes(b"not a library")

    monkeypatch.setattr(native, "compiler", lambda: "cc")
    monkeypatch.setattr(native, "compile_library", touch)
    assert native.backend().startswith("torch: ") and median() == 2


def test_environment_variable_selects_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMPART_KERNELS", "torch")
    assert native.backend() == "torch: RAMPART_KERNELS=torch" and median() == 2
    monkeypatch.setenv("RAMPART_KERNELS", "native")
    monkeypatch.setattr(native, "compiler", lambda: None)
    with pytest.raises(ConfigurationError, match="RAMPART_KERNELS=native, but no C compiler"):
        median()
    monkeypatch.setenv("RAMPART_KERNELS", "fast")
    with pytest.raises(ConfigurationError, match="auto, native or torch, not 'fast'"):
        median()


def test_world_writable_cache_folder_is_not_used(fresh: Path) -> None:
    folder = fresh / "rampart"
    folder.mkdir()
    folder.chmod(0o777)
    assert native._cache() != folder


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries for this machine's levels; compiling them takes seconds."""
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
def test_prebuilt_kernels_need_no_compiler(
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
def test_processor_without_a_supported_level_uses_torch(
    built_in_advance: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built_in_advance
    monkeypatch.setattr(processors, "features", frozenset)
    assert native.backend() == "torch: no C compiler is on the path" and median() == 2


@pytest.mark.processes
def test_prebuilt_kernels_of_another_source_are_not_loaded(
    fresh: Path, built_in_advance: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built_in_advance
    changed = fresh / "kernels.c"
    changed.write_text(native.SOURCE.read_text() + "/* changed */\n")
    monkeypatch.setattr(native, "SOURCE", changed)
    assert native.backend().startswith("torch: ")


@pytest.mark.processes
def test_results_of_processor_levels_differ_only_by_rounding(
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


def test_prebuild_fails_without_a_compiler(
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
def test_levels_include_only_those_that_the_processor_supports(
    machine: str, missing: str | None, expected: list[str]
) -> None:
    everything = frozenset().union(*(one.features for one in processors.LEVELS.values()))
    assert processors.levels(machine, everything - {missing}) == expected


@pytest.mark.processes
def test_kernel_calls_leave_no_reference_cycles(fresh: Path) -> None:
    """Otherwise, a worker that rarely collects garbage would grow with every call."""
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
