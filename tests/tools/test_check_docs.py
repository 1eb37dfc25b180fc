"""Every block of the documentation is judged, and what is wrong in one is seen."""

from __future__ import annotations

import pytest

from testkit.repository.docs_blocks import Block, blocks_of
from tools.check_docs import judge, judged


def test_no_block_of_readme_and_docs_is_wrong_or_left_unjudged() -> None:
    outcomes = [(page, block.text, outcome) for page, block, outcome in judged()]
    assert len(outcomes) > 40
    assert [row for row in outcomes if row[2] not in {"run", "validated", "skipped"}] == []


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("yaml", "listener: []\n"),
        ("yaml", "quotas:\n  - user: alice\n    producer_rate: 1\n"),
        ("yaml", "users:\n  alice: {pasword_file: a}\n"),
        ("sh", "sluice tpo --once\n"),
        ("sh", "sluice top --twice\n"),
        ("sh", "sluice quotas export -q a | sluice quotas imprt -\n"),
        ("sh", "make tset\n"),
        ("sh", "kubectl get pods\n"),
        ("toml", "a = 1\n"),
    ],
)
def test_a_block_that_is_wrong_or_cannot_be_judged_is_told(language: str, text: str) -> None:
    assert judge("docs/page.md", Block(language, text, "")) not in {"run", "validated", "skipped"}


def test_a_comment_before_a_block_says_why_it_is_not_run() -> None:
    page = "<!-- not run: needs Docker -->\n```sh\ndocker ps\n```\n\n   ```yaml\n   # a.yaml\n   ```\n"
    (docker, indented) = blocks_of(page)
    assert docker.not_run == "needs Docker"
    assert judge("docs/page.md", docker) == "skipped"
    assert (indented.language, indented.not_run) == ("yaml", "")
