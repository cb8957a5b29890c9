"""Texts as token numbers: words, padding, truncation, and arrays that are not texts."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.datasets.files import VARIABLE
from rampart_fl.shared.learning.data.datasets.text import AGNews


def token(word: str, vocabulary: int = 8192) -> int:
    return 1 + zlib.crc32(word.encode()) % (vocabulary - 1)


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    rows = AGNews(length=5).tokens([b"U.S. stocks: UP 12%!", b"a b c d e f", b"--"])
    assert rows[0].tolist() == [token(w) for w in ("u", "s", "stocks", "up", "12")]
    assert rows[1].tolist() == [token(w) for w in "abcde"]
    assert rows[2].tolist() == [0] * 5


def test_the_vocabulary_bounds_the_tokens() -> None:
    ids = AGNews(length=50, vocabulary=7).tokens([b" ".join(b"w%d" % i for i in range(50))])
    assert (int(ids.min()), int(ids.max())) == (1, 6)


@pytest.mark.parametrize("kind", ["S", "U"])
def test_texts_are_read_from_files_and_other_arrays_are_rejected(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = np.array(["Söhne of war", "sports"]).astype("U")
    x = np.char.encode(texts, "utf-8") if kind == "S" else texts
    y = np.array([0, 1], dtype=np.uint8)
    np.savez(tmp_path / "ag_news.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    samples = datasets.build("ag_news", length=4).load()
    assert samples.x.shape == (3, 4)
    assert samples.x[0].tolist() == [token("s"), token("hne"), token("of"), token("war")]
    np.savez(tmp_path / "ag_news.npz", x_train=y, y_train=y, x_test=y, y_test=y)
    with pytest.raises(ConfigurationError, match=r"holds uint8 of shape .*, not texts"):
        datasets.build("ag_news").load()
