"""The parser of labelled trees: trees written by hand, a plain parser beside it, and everything that can be wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_data import escape, render

from mufuru.experiments.data import DataError, sst
from mufuru.experiments.data.lines import read_lines
from mufuru.experiments.data.sst import Tree, parse

LINE = r"(3 (2 It) (4 (4 (2 's) (4 lovely)) (2 -LRB-)))"
WORD = st.text(st.sampled_from("ab'`.-/*\\()\u00a0é€😀"), min_size=1, max_size=4)
LABEL = st.integers(0, 4)
TREE = st.recursive(
    st.builds(Tree, LABEL, WORD),
    lambda inner: st.builds(lambda label, parts: Tree(label, None, tuple(parts)), LABEL, st.lists(inner, min_size=1)),
    max_leaves=12,
)


def plain(text: str) -> Any:
    """The same, as one would write it without looking for errors: (label, word) or (label, [trees])."""

    def tree() -> Any:
        assert tokens.pop() == "("
        label = int(tokens.pop())
        if tokens[-1] != "(":
            word = tokens.pop()
            assert tokens.pop() == ")"
            return label, word
        children = []
        while tokens[-1] == "(":
            children.append(tree())
        assert tokens.pop() == ")"
        return label, children

    tokens = re.findall(r"[()]|[^ ()]+", text)[::-1]
    found = tree()
    assert not tokens
    return found


def as_plain(tree: Tree) -> Any:
    word = tree.word
    return tree.label, [as_plain(child) for child in tree.children] if word is None else escape(word)


def read(path: Path) -> list[Tree]:
    return sst.from_lines(read_lines(path), str(path))


def test_a_tree() -> None:
    tree = parse(LINE)
    assert tree.label == 3
    assert tree.words() == ["It", "'s", "lovely", "("]
    assert tree.words() == ["It", "'s", "lovely", "("]
    assert len(tree.children) == 2
    assert tree.children[0] == Tree(2, "It")
    assert render(tree) == LINE


def test_nodes_come_after_their_children() -> None:
    phrases = [(node.label, " ".join(node.words())) for node in parse(LINE).nodes()]
    assert phrases == [
        (2, "It"),
        (2, "'s"),
        (4, "lovely"),
        (4, "'s lovely"),
        (2, "("),
        (4, "'s lovely ("),
        (3, "It 's lovely ("),
    ]


@given(TREE)
def test_round_trip(tree: Tree) -> None:
    assert parse(render(tree)) == tree
    assert render(parse(render(tree))) == render(tree)


@given(TREE)
def test_a_plain_parser_agrees(tree: Tree) -> None:
    assert plain(render(tree)) == as_plain(parse(render(tree)))


@given(TREE)
def test_spans_are_the_words_of_the_phrases(tree: Tree) -> None:
    words = tree.words()
    spans = tree.spans()
    assert [node for node, _, _ in spans] == tree.nodes()
    for node, start, end in spans:
        assert words[start:end] == node.words()


@given(WORD)
def test_escaping_is_undone(word: str) -> None:
    escaped = escape(word)
    assert not set(escaped) & set("()")
    assert sst.unescape(escaped) == word


@pytest.mark.parametrize(
    ("escaped", "word"),
    [
        ("-LRB-", "("),
        ("-RRB-", ")"),
        (r"and\/or", "and/or"),
        (r"\*\*\*", "***"),
        (":-RRB-", ":)"),
        ("``", "``"),
        ("''", "''"),
        ("--", "--"),
        ("2\u00a01\\/2", "2\u00a01/2"),
    ],
)
def test_escaped_words(escaped: str, word: str) -> None:
    assert parse(f"(2 {escaped})").word == word
    assert render(Tree(2, word)) == f"(2 {escaped})"


@pytest.mark.parametrize("text", ["(3 (2 a) (1 b))", " ( 3 (2 a)(1\tb ) ) \n", "(3(2 a) (1 b))"])
def test_blanks_do_not_matter(text: str) -> None:
    assert render(parse(text)) == "(3 (2 a) (1 b))"


def test_any_number_of_children() -> None:
    assert [len(node.children) for node in parse("(3 (2 (1 a)) (2 b) (2 c))").nodes()] == [0, 1, 0, 0, 3]


def test_no_tree_is_too_deep() -> None:
    depth = 20_000
    text = "(1 (2 a) " * depth + "(0 b)" + ")" * depth
    tree = parse(text)
    assert len(tree.nodes()) == 2 * depth + 1
    assert render(tree) == text
    assert tree.spans()[-1][1:] == (0, depth + 1)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected '(' to begin a tree, got the end of the line"),
        ("good film", 1, "expected '(' to begin a tree, got 'good'"),
        (")", 1, r"expected '(' to begin a tree, got ')'"),
        ("(", 2, "expected a label from 0 to 4, got the end of the line"),
        ("(5 a)", 2, "expected a label from 0 to 4, got '5'"),
        ("(-1 a)", 2, "expected a label from 0 to 4, got '-1'"),
        ("(12 a)", 2, "expected a label from 0 to 4, got '12'"),
        ("(good)", 2, "expected a label from 0 to 4, got 'good'"),
        ("((2 a))", 2, "expected a label from 0 to 4, got '('"),
        ("(2)", 3, "expected a word or '(', got ')'"),
        ("(2 )", 4, "expected a word or '(', got ')'"),
        ("(2 a", 5, "expected ')' after the word, got the end of the line"),
        ("(2 a b)", 6, "expected ')' after the word, got 'b'"),
        ("(2 a (3 b))", 6, "expected ')' after the word, got '('"),
        ("(4 (2 a) b)", 10, "expected '(' or ')' for the tree of label 4, got 'b'"),
        ("(4 (2 a) (3 b)", 15, "expected '(' or ')' for the tree of label 4, got the end of the line"),
        ("(4 (2 a) ())", 11, "expected a label from 0 to 4, got ')'"),
        ("(2 a) (2 b)", 7, "expected the end of the line after a whole tree, got '('"),
        ("(2 a))", 6, "expected the end of the line after a whole tree, got ')'"),
    ],
)
def test_not_a_tree(tmp_path: Path, text: str, column: int, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"column {column}: {message}")):
        parse(text)
    if text:
        path = tmp_path / "bad.txt"
        path.write_text(f"(2 good)\n\n{text}\n(2 good)\n", encoding="utf-8")
        with pytest.raises(DataError, match=re.escape(f"{path}, line 3, column {column}: {message}")):
            read(path)


@given(st.text(st.sampled_from("( )2a5"), max_size=12))
def test_whatever_comes_is_a_tree_or_refused(text: str) -> None:
    try:
        expected = plain(text)
    except (AssertionError, IndexError, ValueError):
        expected = None
    try:
        found = as_plain(parse(text))
    except DataError:
        return
    assert found == expected


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_bytes(f"\ufeff{LINE}\r\n\r\n(0 naïveté)".encode())
    assert [render(tree) for tree in read(path)] == [LINE, "(0 naïveté)"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_bytes(b"\n \n")
    with pytest.raises(DataError, match=r"trees.txt is empty: expected a tree a line"):
        read(path)
    path.write_bytes(b"(2 a)\n(2 na\xefve)\n")
    with pytest.raises(DataError, match=r"trees.txt, line 2: expected UTF-8, got the byte 0xef"):
        read(path)
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "none.txt")
