"""Every block of Python in the README and under docs/ runs: in order, and in one namespace a page.

A `python` block runs as a script. A `pycon` block runs as a doctest: the results that it shows are checked.
"""

import doctest
import shutil
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = {"python", "pycon"}
SHOWN = {"bash", "json", "text", "toml", "yaml"}


def blocks(page):
    """Language, text and line of the fence of each block. Code in no known language is an error."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type in {"fence", "code_block"}:
            language, line = token.info.strip(), token.map[0] + 1
            if language not in RUN | SHOWN:
                pytest.fail(f'File "{page}", line {line}: {language!r} is none of {sorted(RUN | SHOWN)}')
            yield language, token.content, line


def run_page(page):
    namespace = {"__name__": "__main__"}
    ran = 0
    for language, text, line in blocks(page):
        if language == "python":
            # Blank lines above give each line the number that it has on the page.
            exec(compile("\n" * line + text, page, "exec"), namespace)  # noqa: S102 - the pages are our own
        elif language == "pycon":
            test = doctest.DocTestParser().get_doctest(text, namespace, page.name, str(page), line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            report = []
            runner.run(test, out=report.append, clear_globs=False)
            if runner.failures:
                pytest.fail("".join(report))
            if not test.examples or "+SKIP" in text:
                pytest.fail(f'File "{page}", line {line}: a doctest that does not run')
            namespace = test.globs
        ran += language in RUN
    return ran


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page, tmp_path, monkeypatch):
    # As from the root of the repository, but what a block writes goes elsewhere.
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    ran = run_page(page)
    assert ran or page.name != "README.md"


BROKEN = {
    "in a list": (
        "Text.\n\n```python\nx = 1\n```\n\n- item\n\n  ```python\n  x == 1\n  assert x == 2\n  ```\n",
        11,
    ),
    "syntax": ("```python\nx = 1\n```\n\n```python\ny = (\n```\n", 6),
    "wrong result": ("```python\nx = 1\n```\n\n```pycon\n>>> x\n1\n>>> x + 1\n3\n```\n", 8),
    "error in doctest": ("```pycon\n>>> x = 0\n>>> 1 / x\n```\n", 3),
    "no prompt": ("```pycon\nx = 1\n```\n", 1),
    "skipped": ("```pycon\n>>> 1 / 0  # doctest: +SKIP\n```\n", 1),
    "no language": ("Text.\n\n```\nx = 1\n```\n", 3),
    "unknown language": ("```Python\nx = 1\n```\n", 1),
    "indented": ("Text.\n\n    x = 1\n", 3),
}


@pytest.mark.parametrize(("text", "line"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_block_fails_at_its_line(text, line, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises((Exception, pytest.fail.Exception)) as failure:
        run_page(page)
    assert f'File "{page}", line {line}' in str(failure.getrepr(style="native"))


def test_names_pass_from_block_to_block(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n```pycon\n>>> y = x + 1\n```\n\n```python\nassert y == 2\n```\n",
        encoding="utf-8",
    )
    assert run_page(page) == 3


def test_the_page_of_metrics_is_what_the_classes_say(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import build

    for name, write in build.PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == write(), "run python docs/build.py"
