"""Named draws: the same in every process, and different for different names."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.seeding import derive, generator

PATHS = st.lists(st.one_of(st.text(max_size=5), st.integers(-5, 50)), max_size=3)


@given(st.integers(), PATHS)
def test_derived_seeds_fit_in_63_bits_and_seed_the_generator(
    seed: int, path: list[str | int]
) -> None:
    derived = derive(seed, *path)
    assert 0 <= derived < 2**63
    assert torch.equal(
        torch.rand(3, generator=generator(seed, *path)),
        torch.rand(3, generator=torch.Generator().manual_seed(derived)),
    )


@given(st.integers(0, 5), PATHS, st.integers(0, 5), PATHS)
def test_different_names_give_different_seeds(
    seed: int, path: list[str | int], other_seed: int, other: list[str | int]
) -> None:
    same = (seed, path, [type(part) for part in path]) == (
        other_seed,
        other,
        [type(part) for part in other],
    )
    text = "".join(str(part) for part in [*path, *other])
    if "\x1f" not in text:
        assert (derive(seed, *path) == derive(other_seed, *other)) == same


def test_component_types_and_boundaries_of_paths_change_the_seed() -> None:
    assert derive(1, 2) != derive(1, "2")
    assert derive(1, "a", "b") != derive(1, "ab")
    assert derive(1, 2) != derive(12)


@pytest.mark.processes
def test_seeds_do_not_depend_on_process_or_hash_seed() -> None:
    code = (
        "from rampart_fl.shared.seeding import derive; print(derive(7, 'batches', 'client-3', 11))"
    )
    for hash_seed in ("0", "42"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert int(out) == derive(7, "batches", "client-3", 11)


def test_drawing_leaves_torchs_global_random_state_unchanged() -> None:
    before = torch.get_rng_state()
    torch.rand(5, generator=generator(1, "x"))
    assert torch.equal(torch.get_rng_state(), before)
