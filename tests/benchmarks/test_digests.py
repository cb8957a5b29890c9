"""The experiments whose models are compared between two versions."""

from benchmarks.digests import experiments


def test_every_shipped_experiment_on_digits_is_compared() -> None:
    compared = experiments()
    assert {"fedredefense", "digits-benign", "digits-combined", "digits-pawbrofl-mu"} <= set(
        compared
    )
    assert {one.data.dataset["name"] for one in compared.values()} == {"digits"}
    assert compared["digits-pawbrofl-mu"].server.rule[0]["mu"] == 0.01, "the first run of the grid"
