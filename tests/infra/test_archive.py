"""The bucket of the archive, and who is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.aws.config.stages import ARCHIVE_OUTPUT
from tidings.http import archive_url

from infra.settings import chosen
from tests.infra.templates import Resource, Template, synthesised, text

pytestmark = pytest.mark.node


def bucket(template: Template) -> tuple[str, Resource]:
    name, _ = template.only("AWS::S3::Bucket", "Archive")
    return name, template.body["Resources"][name]


def test_every_stage_has_one(template: Template) -> None:
    """So what is tried is what runs; a feed that nobody posts to costs nothing."""
    name, _ = bucket(template)

    assert text(template.body["Outputs"][ARCHIVE_OUTPUT]["Value"]) == f"s3://<{name}>"
    for function in template.resources("AWS::Lambda::Function").values():
        told = text(function["Environment"]["Variables"]["TIDINGS_ARCHIVE"])
        assert archive_url.parse(told) == archive_url.ArchiveUrl(f"<{name}>", "")


def test_its_parts_never_expire(template: Template) -> None:
    """They may become cheaper to keep; uploads that were broken off go."""
    rules = bucket(template)[1]["Properties"]["LifecycleConfiguration"]["Rules"]

    assert not any("Expiration" in name for rule in rules for name in rule)
    assert [rule["AbortIncompleteMultipartUpload"] for rule in rules] == [
        {"DaysAfterInitiation": 1}
    ]
    days = template.stage.archive_cold_days
    colder = [{"StorageClass": "GLACIER_IR", "TransitionInDays": days}] if days else None
    assert rules[0].get("Transitions") == colder


def test_it_is_kept_and_encrypted_as_the_tables_are(template: Template) -> None:
    """It holds the same data: under the stage's own key where there is one."""
    _, found = bucket(template)
    encryption = found["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    algorithm = encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"]

    assert found["DeletionPolicy"] == (
        "RetainExceptOnCreate" if template.stage.keep_data else "Delete"
    )
    assert algorithm == ("aws:kms" if template.stage.customer_key else "AES256")
    assert "VersioningConfiguration" not in found["Properties"]


def test_the_sweep_may_wake_its_follower(template: Template) -> None:
    """And no stream does: a part is a write that is paid for."""
    follower, _ = template.function("follow-archive")
    mappings = template.resources("AWS::Lambda::EventSourceMapping").values()

    assert not any(follower in text(each["FunctionName"]) for each in mappings)
    allowed = template.statements(template.role_of("sweep"))
    assert any("follow-archive" in text(r) for s in allowed for r in s["Resource"])


def test_a_stage_may_do_without() -> None:
    """Then there is no bucket, no right on one, and no function is told of any."""
    (dev,) = chosen("dev")
    made = synthesised(replace(dev, archive=False))

    assert not any(name.startswith("Archive") for name in made.resources("AWS::S3::Bucket"))
    assert ARCHIVE_OUTPUT not in made.body["Outputs"]
    assert "/archive/*" not in str(made.resources("AWS::IAM::Policy"))
    told = {
        each["Environment"]["Variables"]["TIDINGS_ARCHIVE"]
        for each in made.resources("AWS::Lambda::Function").values()
    }
    assert told == {""}
