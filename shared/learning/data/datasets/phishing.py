"""Legitimate and phishing web sites, described by binary features."""

import numpy as np

from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.datasets.files import FileDataset


@datasets.register("phishing")
class Phishing(FileDataset):
    """11,055 web sites with 68 binary features each; class 1 means that a site is legitimate.

    The 68 columns are a one-hot encoding of the 30 original features, whose values are -1, 0 and 1.
    If the user provides the file, Rampart does not reorder its columns. In a file that Rampart
    makes from OpenML's table, the columns are ordered by feature, then by value.
    """

    paper = "Mohammad et al., An assessment of features related to phishing websites, 2012"
    licence = "CC BY 4.0 (UCI)"
    sample, labels, total = (68,), 2, 11_055
    scale = 1.0
    openml, train = 4534, 8_844

    def from_openml(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        columns = [column == value for column in x.T for value in np.unique(column)]
        if len(columns) != self.sample[0]:
            raise ValueError(f"{len(columns)} binary features, not {self.sample[0]}")
        order = np.arange(len(y))
        # The data set has no predefined split, so every fifth site is used for testing.
        order = np.concatenate([order[order % 5 != 4], order[order % 5 == 4]])
        return np.stack(columns, 1).astype(np.uint8)[order], (y > 0).astype(np.int64)[order]
