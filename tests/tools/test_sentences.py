"""Sentences for a test with a reader: drawn from docstrings, comments, messages and pages."""

import ast
from pathlib import Path

import pytest

from tools import sentences
from tools.imports import ROOT

MODULE = '''"""Does one thing. Does it well.

    a diagram   without an end

Args:
    first: the first
        of several values.
Returns:
    All of the values.

>>> 1 + 1
2
"""
# A comment on
# two lines follows.
LIMIT = 3  # noqa: E741 - this is no sentence of ours.
"""How many there are at most."""


def check(n):
    if n > LIMIT:
        raise ValueError(f"there are {n} of them; the limit is " f"{LIMIT}")
    log.warning("%s of them are still missing", n)
    print("this text is shown to nobody")
'''
TEXTS = '''"""A module."""


def serve(port: int = Option(help="Port of the server, or 0 for any port. Use it with care.")):
    digest: str = Field(default="not a text of ours", description=f"digest of all {port} models")
    raise Refused("refused", detail=f"port {port} is in use") from None


def judge(score, odd):
    """This docstring is not a reason."""
    reason = "sent the same " + ("four words as others" if odd else f"as {score} of the clients")
    return verdict_for("client", score, "score {0} is below threshold {1}"), Verdict(reason=reason)


def explain(score):
    """Neither is this docstring."""
    why = f"score {score} of the upload"
    return f"{why} is {'above' if score else 'just below'} its limit"
'''
SCRIPT = """/**
 * Opens the dialog. Shows it once a minute.
 *
 * @param {string} name this tag is not drawn.
 */
import { html } from "./preact.js";
// This comment is drawn.
const text = open ? "There are no runs yet." : `Run ${name} is queued now`;
const view = html`<div class="a b c d" title="Why the run waits">
  <p>The run waits for ${n ? html`<b>more than ${n} other clients</b>` : "all of its clients"},
    <em>or</em> for an operator.</p><p>too short</p>
</div>`;
"""
PAGE = """# A heading is not drawn.

Run the command,
and wait.

```sh
this is a command, and is not drawn.
```

| this cell | is not drawn. |

- Items are drawn. Short one.
"""


def test_module_gives_its_docstrings_comments_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    drawn = sentences.sentences_of(path)
    assert [one.text for one in drawn] == [
        "there are ... of them; the limit is ...",
        "%s of them are still missing",
        "first: the first of several values.",
        "All of the values.",
        "How many there are at most.",
        "A comment on two lines follows.",
    ], "'Does one thing.' is too short, and the diagram does not end like a sentence"
    places = ["check", "check", "", "", "LIMIT", ""]
    assert [one.place for one in drawn] == [f"module.py, {name}".rstrip(", ") for name in places]


def test_module_gives_texts_that_users_see(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(TEXTS)
    drawn = {one.text: one for one in sentences.sentences_of(path)}
    docstrings = {"This docstring is not a reason.", "Neither is this docstring."}
    assert set(drawn) - docstrings == {
        "Port of the server, or 0 for any port.",
        "Use it with care.",
        "digest of all ... models",
        "port ... is in use",
        "four words as others",
        "as ... of the clients",
        "score {0} is below threshold {1}",
        "score ... of the upload",
    }, "the last text consists mostly of placeholders"
    second = drawn["Use it with care."]
    assert second.before == "Port of the server, or 0 for any port."
    assert second.place == "module.py, serve"


def test_script_gives_its_comments_and_shown_texts(tmp_path: Path) -> None:
    path = tmp_path / "view.js"
    path.write_text(SCRIPT)
    assert [one.text for one in sentences.sentences_of(path)] == [
        "There are no runs yet.",
        "Run ... is queued now",
        "more than ... other clients",
        "all of its clients",
        "Why the run waits",
        "The run waits for ..., or for an operator.",
        "Shows it once a minute.",
        "This comment is drawn.",
    ]


def test_html_gives_its_shown_texts(tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text("<title>Rampart</title><body>This page <code>needs</code> a script.</body>")
    assert [one.text for one in sentences.sentences_of(path)] == ["This page needs a script."]


def test_page_gives_its_prose_only(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert sentences.sentences_of(path) == [
        sentences.Sentence("page.md, A heading is not drawn.", "Run the command, and wait.")
    ]


def test_sentence_comes_with_the_sentence_before_it(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("The first sentence stands alone. The second sentence follows it.\n")
    first, second = "The first sentence stands alone.", "The second sentence follows it."
    assert sentences.sentences_of(path) == [
        sentences.Sentence("page.md", first),
        sentences.Sentence("page.md", second, first),
    ]


def test_line_that_continues_an_item_does_not_begin_a_paragraph(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("- Both runs lose\n  more than a point: by two points.\n")
    (only,) = sentences.sentences_of(path)
    assert only.text == "Both runs lose more than a point: by two points."


def test_place_names_the_innermost_function_class_or_variable() -> None:
    code = 'class A:\n    x = 1\n    """About x."""\n\n    def f(self):\n        pass\n\n\ny = 2\n'
    assert sentences.names(ast.parse(code)) == {
        1: "A",
        2: "A.x",
        3: "A.x",
        4: "A",
        5: "A.f",
        6: "A.f",
        9: "y",
    }


@pytest.mark.slow
def test_same_seed_draws_the_same_sentences() -> None:
    drawn = sentences.draw(1, 100)
    assert len(set(drawn)) == 100
    assert sentences.draw(1, 100) == drawn != sentences.draw(2, 100)
    tops = {one.place.partition("/")[0] for one in drawn}
    assert {"shared", "services", "docs"} <= tops


def test_every_file_is_read_once_whatever_links_lead_to_it() -> None:
    files = sentences.files()
    assert len(files) == len(set(files)) > 400
    assert ROOT / "README.md" in files and ROOT / "shared/errors.py" in files
    page = ROOT / "services/aggregator/page"
    assert page / "index.html" in files and page / "assets/views/run.js" in files
    assert page / "assets/vendor/preact.js" not in files
    assert not [path for path in files if "rampart_fl/shared" in str(path)]


@pytest.mark.slow
def test_command_prints_numbered_sentences_with_their_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentences.main(["--seed", "7", "--count", "2"])
    lines = capsys.readouterr().out.splitlines()
    drawn = sentences.draw(7, 2)
    assert lines[::2] == [f"{number}. {one.text}" for number, one in enumerate(drawn, 1)]
    for line, one in zip(lines[1::2], drawn, strict=True):
        assert line == f"   ({one.place}{one.before and ', after: '}{one.before})"


def test_raised_names_without_a_message_are_skipped() -> None:
    assert list(sentences.messages(ast.parse("raise error from None"))) == []
