"""The global models of a run's newest rounds, kept so that other runs can start from them."""

from rampart_fl.services.aggregator.state.record_store import RecordStore
from rampart_fl.services.aggregator.state.stored_values import read_model
from rampart_fl.shared.protocol.stored_rounds import StoredRound


class KeptModels:
    """Digests of the global models from the newest rounds that published a model.

    Args:
        count: number of rounds whose models are kept.

    >>> kept = KeptModels(2)
    >>> [kept.add(round, digest) for round, digest in enumerate(["a", "b", "b", "c", "d"])]
    [set(), set(), {'a'}, set(), {'b'}]
    >>> kept.models
    {3: 'c', 4: 'd'}
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.models: dict[int, str] = {}
        """Digests of the kept models, keyed by round, in order."""

    @property
    def digests(self) -> set[str]:
        """Digests of the kept models."""
        return set(self.models.values())

    async def restore(self, records: RecordStore, newest: int) -> None:
        """Restores the digests of the kept models from the records of a run.

        Args:
            records: the records of the run.
            newest: number of the run's current round, or of its final round if the run has ended.
        """
        entries = await records.entries(max(0, newest - self.count), newest)
        for round_ in entries:
            record = await records.record_json(entries[round_])
            models = read_model(StoredRound, record).models if record else {}
            self.add(round_, models.get("global"))

    def add(self, round_: int, digest: str | None) -> set[str]:
        """Adds a round's model, if any; returns the digests of models that are no longer kept."""
        if digest is None:
            return set()
        self.models[round_] = digest
        oldest = [self.models.pop(n) for n in list(self.models)[: -self.count]]
        return set(oldest) - self.digests
