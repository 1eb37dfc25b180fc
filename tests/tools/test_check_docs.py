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
        ("sh", "sluice quotas diff -q quotas.yaml\n"),
        ("sh", "sluice top --rows many\n"),
        ("sh", "sluice top --sort size\n"),
        ("sh", "sluice quotas export\n"),
        ("sh", "sluice configs -q quotas.yaml --alter --add-config producer_byte_rate=1\n"),
        ("sh", "sluice configs -q quotas.yaml --alter --user a --add-config producer_rate=1\n"),
        ("sh", "sluice configs -q quotas.yaml --describe --entity-type topics\n"),
        ("sh", "make tset\n"),
        ("sh", "kubectl get pods\n"),
        ("toml", "a = 1\n"),
        ("sh", "kubectl exec POD -c sluice -- sh\n"),
        ("sh", "kubectl exec POD -c sluice -- sluice tpo\n"),
        ("sh", "kubectl logs POD --all\n"),
        ("sh", "docker build -t sluice --target proxi .\n"),
        ("sh", "docker run --privileged sluice\n"),
        ("sh", "pip install -r requirements/none.txt\n"),
        ("sh", "pip download sluice\n"),
        ("sh", "curl -s localhost:9308/api/v1/principles\n"),
        ("sh", "curl -s 'localhost:9308/api/v1/principals?throtled=true'\n"),
        ("sh", "spark-submit $(sluice recalibrate --job-file) --logz a\n"),
        ("sh", "spark-submit job.py\n"),
        ("sh", "bin/kafka-topicz.sh --list\n"),
        ("sh", "docker compose ps\n"),
        ("sh", "docker compose up --privileged\n"),
        ("sh", "docker compose exec zookeeper /opt/kafka/bin/kafka-topics.sh --list\n"),
        ("sh", "docker compose exec kafka /opt/kafka/bin/kafka-topicz.sh --list\n"),
        ("sh", "docker compose exec kafka bash\n"),
        ("sh", "systemctl mask sluice.service\n"),
        ("sh", "systemctl enable --now sluce.service\n"),
        ("sh", "sh certificate.sh\n"),
        ("sh", "seq 2 | xargs -P 2 kafka-topicz.sh\n"),
        ("sh", "seq 2 | xargs --exit kafka-topics.sh\n"),
        ("sh", "install --strip a b\n"),
        ("sh", "rm -rf folder\n"),
    ],
)
def test_a_block_that_is_wrong_or_cannot_be_judged_is_told(language: str, text: str) -> None:
    assert judge("docs/page.md", Block(language, text, "")) not in {"run", "validated", "skipped"}


@pytest.mark.parametrize(
    "text",
    [
        "kubectl exec POD -c sluice -- sluice top --once",
        "docker build -t sluice-recalibration --target recalibration .",
        "JMX_PORT=9999 bin/kafka-server-start.sh config/server.properties      # a broker",
        "curl -s -H \"Authorization: $T\" 'http://proxy:9308/api/v1/principals?throttled=true' | jq '.rows'",
        "~/sluice-env/bin/pip install --require-hashes -r requirements/run.txt",
    ],
)
def test_a_command_of_another_program_is_held_against_what_it_names(text: str) -> None:
    assert judge("docs/page.md", Block("sh", f"{text}\n", "")) == "validated"


def test_no_block_is_left_out_of_readme_and_quick_start_and_few_elsewhere() -> None:
    outcomes = [(page, outcome) for page, _, outcome in judged()]
    skipped = [page for page, outcome in outcomes if outcome == "skipped"]
    assert not {"README.md", "docs/quick-start.md"} & {*skipped}
    assert len(skipped) <= 0.05 * len(outcomes)


def test_a_comment_before_a_block_says_why_it_is_not_run() -> None:
    page = "<!-- not run: needs Docker -->\n```sh\ndocker ps\n```\n\n   ```yaml\n   # a.yaml\n   ```\n"
    (docker, indented) = blocks_of(page)
    assert docker.not_run == "needs Docker"
    assert judge("docs/page.md", docker) == "skipped"
    assert (indented.language, indented.not_run) == ("yaml", "")
