"""Human activity recognition from wearable accelerometers; each user is a natural client."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import Arrived, Samples, datasets, no_progress
from rampart_fl.shared.learning.data.datasets.files import FileDataset, Original

WINDOW = 200
"""Number of measurements in a window, which lasts ten seconds in WISDM and four seconds in HAPT."""
ACTIVITIES = ("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing")
"""WISDM's classes, in order."""
STEP = 10_000
"""Number of records between two progress reports."""
GRAVITY = 9.80665
"""The acceleration 1 g, in m/s²."""
NUMBER = r"(-?\d+(?:\.\d+)?(?:[eE]-?\d+)?)"
RECORD = re.compile(rf"(\d+),({'|'.join(ACTIVITIES)}),(\d+),{NUMBER},{NUMBER},{NUMBER}\s*,?\s*;")


@datasets.register("hapt")
class HAPT(FileDataset):
    """Windows of 200 accelerations (g, 50 Hz) on three axes, 12 activities, 30 users."""

    paper = "Reyes-Ortiz et al., Transition-aware human activity recognition, 2016"
    licence = "CC BY 4.0 (UCI)"
    sample, labels, total = (3, 1, WINDOW), 12, 3_500


@datasets.register("wisdm")
class WISDM(FileDataset):
    """43 features of ten-second accelerometer windows, 6 activities, 36 users.

    All samples are standardized with the mean and standard deviation of the clients' training
    samples. Samples from a client's own file are not standardized.
    """

    paper = "Kwapisz et al., Activity recognition using cell phone accelerometers, 2010"
    licence = "research with citation and its readme (WISDM Lab)"
    sample, labels, total = (43,), 6, 5_418

    def load(self) -> Samples:
        return replace(super().load(), standardized=True)


def windows(text: str, arrived: Arrived = no_progress) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parses WISDM's raw text: accelerations float32 (n, 3, 200) in g, activities (n,), users (n,).

    A record is `user,activity,time,x,y,z;` with accelerations in m/s². Records that lack a number
    or have time 0 are skipped. A line may hold several records.
    """
    keys, accelerations = [], []
    total = text.count(";")
    for number, record in enumerate(RECORD.finditer(text), start=1):
        user, activity, time, *xyz = record.groups()
        if int(time):
            keys.append((int(user), ACTIVITIES.index(activity)))
            accelerations.append(tuple(map(float, xyz)))
        if number % STEP == 0:
            arrived(number, total)
    key = np.array(keys).reshape(-1, 2)
    ends = np.flatnonzero((key[1:] != key[:-1]).any(1)) + 1
    runs = pairwise([0, *ends.tolist(), len(key)])
    cuts = [c for a, b in runs for c in range(a, b - WINDOW + 1, WINDOW)]
    g = np.array(accelerations, dtype=np.float32).reshape(-1, 3) / GRAVITY
    x = np.array([g[cut : cut + WINDOW].T for cut in cuts], dtype=np.float32)
    return x.reshape(-1, 3, WINDOW), key[cuts, 1].astype(np.uint8), key[cuts, 0].astype(np.uint8)


def read_raw(path: Path, arrived: Arrived = no_progress) -> dict[str, np.ndarray]:
    """The arrays from WISDM's raw file; the last quarter of each user's windows is the test set."""
    x, y, users = windows(path.read_text(encoding="utf-8", errors="replace"), arrived)
    if not len(y):
        raise ConfigurationError(f"{path} has no window of {WINDOW} records")
    test = np.zeros(len(y), dtype=bool)
    for user in np.unique(users):
        rows = np.flatnonzero(users == user)
        test[rows[len(rows) * 3 // 4 :]] = True
    return {
        f"{name}_{part}": array[rows]
        for part, rows in (("train", ~test), ("test", test))
        for name, array in (("x", x), ("y", y), ("group", users))
    }


@datasets.register("wisdm_raw")
class WISDMRaw(FileDataset):
    """Windows of 200 accelerations (g, 20 Hz) on three axes, 6 activities, 36 users.

    Rampart makes the windows from the publisher's file WISDM_ar_v1.1_raw.txt and skips incomplete
    records. Windows do not overlap; each contains consecutive measurements of one user during one
    activity. Rampart does not download the file: get it from the publisher.
    """

    paper = "Kwapisz et al., 2010; FedCAP, section VI-A1"
    licence = "research with citation and its readme (WISDM Lab)"
    sample, labels = (3, 1, WINDOW), 6
    original = Original("WISDM_ar_v1.1_raw.txt", read_raw)
