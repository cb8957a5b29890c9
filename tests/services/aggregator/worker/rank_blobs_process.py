"""One rank of `test_ranked_blobs.py`: reads some blobs of an object store, then stores models.

Arguments: folder of the cache and of the results, and digests of the blobs to read.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from rampart_fl.services.aggregator.state.run_blobs import RunBlobs
from rampart_fl.services.aggregator.worker.model_store import ModelStore
from rampart_fl.services.aggregator.worker.ranked_blobs import RankedBlobs
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.robust.models import ModelBlock

LOCATION, RUN = "s3://bucket/federation", "run"
LONG = ModelSpec.of([("weight", (1000, 1001)), ("bias", (7,))])
"""A model of 4 MB, which is 16 shards."""
SHORT = ModelSpec.of([("weight", (70_000,))])
"""A model of two shards, so that a third rank has no coordinates."""


def models(spec: ModelSpec) -> ModelBlock:
    """Some models (5, D)."""
    draws = torch.Generator().manual_seed(3)
    return ModelBlock(tuple("abcde"), torch.randn(5, spec.dim, generator=draws))


def main() -> None:
    """Reads and stores as one rank."""
    folder, ranks = Path(sys.argv[1]), Ranks.connect()
    blobs = RunBlobs(LOCATION, folder / "cache").of_run(RUN)
    part = ranks.part(LONG.dim)
    vectors = Vectors(RankedBlobs(blobs, ranks), LONG, torch.device("cpu"), part)
    for digest in sys.argv[2:]:
        np.save(folder / f"{digest}.{ranks.rank}.npy", vectors.read(digest).numpy())
    stored = []
    for spec in (LONG, SHORT):
        here, whole = ranks.part(spec.dim), models(spec)
        own = whole if here is None else ModelBlock(whole.names, whole.models_LD[:, here.here])
        store = ModelStore(blobs, spec, ranks)
        stored += [*store.put_all(own).values(), store.put(own.models_LD[1])]
        store.close()
    (folder / f"stored.{ranks.rank}.json").write_text(json.dumps(stored))


if __name__ == "__main__":
    main()
