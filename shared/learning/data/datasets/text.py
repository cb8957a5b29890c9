"""Text data sets; each text is a row of token ids."""

import re
import zlib

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.datasets.files import FileDataset

WORD = re.compile(rb"[a-z0-9]+")


@datasets.register("ag_news")
class AGNews(FileDataset):
    """News in four classes (world, sports, business, science): title and first sentences.

    A sample is a row of `length` token ids, which are integers 0..vocabulary-1 stored as
    float32. Words are runs of letters or digits, in lower case. The id of a word is 1 +
    crc32(word) mod (vocabulary - 1), so clients need no shared vocabulary. Shorter texts are padded
    with id 0, and longer texts are truncated to `length` words.

    >>> AGNews(length=4).tokens([b"Oil prices rise", b""]).tolist()
    [[4147.0, 5102.0, 3686.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    paper = "Zhang, Zhao and LeCun, Character-level convolutional networks, 2015"
    licence = "non-commercial research (AG's corpus)"
    labels, total, discrete = 4, 127_600, True
    length: int = Field(default=64, ge=1, le=2**16)
    """Number of tokens in a sample."""
    vocabulary: int = Field(default=8192, ge=2, le=2**24)
    """Number of distinct token ids, including 0 for padding. Words are hashed, so different words
    may have the same id."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def features(self, array: np.ndarray, what: str) -> Tensor:
        if array.dtype.kind not in "SU" or array.ndim != 1:
            raise ConfigurationError(
                f"{what} holds {array.dtype} of shape {array.shape}, not texts"
            )
        if array.dtype.kind == "U":
            array = np.char.encode(array, "utf-8")
        return self.tokens(array.tolist())

    def tokens(self, texts: list[bytes]) -> Tensor:
        """The token ids (n, length) of n UTF-8 texts."""
        known: dict[bytes, int] = {}
        ids = np.zeros((len(texts), self.length), dtype=np.float32)
        for row, text in zip(ids, texts, strict=True):
            for at, word in enumerate(WORD.findall(text.lower())[: self.length]):
                if word not in known:
                    known[word] = 1 + zlib.crc32(word) % (self.vocabulary - 1)
                row[at] = known[word]
        return torch.from_numpy(ids)
