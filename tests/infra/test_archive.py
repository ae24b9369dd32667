"""The bucket of the archive, and the functions that know it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.settings import choose_stages
from tests.infra.templates import Resource, Template, synthesised
from tidings.aws.config.stages import ARCHIVE_OUTPUT
from tidings.lake import iceberg

pytestmark = pytest.mark.node


def bucket(template: Template) -> tuple[str, Resource]:
    name, _ = template.only("AWS::S3::Bucket", "Archive")
    return name, template.body["Resources"][name]


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
    """It contains the same data: under the stage's own key if it has one."""
    _, found = bucket(template)
    encryption = found["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    algorithm = encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"]

    assert found["DeletionPolicy"] == (
        "RetainExceptOnCreate" if template.stage.keep_data else "Delete"
    )
    assert algorithm == ("aws:kms" if template.stage.customer_key else "AES256")
    assert "VersioningConfiguration" not in found["Properties"]


def test_a_stage_may_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no bucket exists, no right on one, and no function has its address."""
    (dev,) = choose_stages("dev")
    monkeypatch.setattr(iceberg, "jar", None)  # `make synth STAGE=dev` downloads no jar
    made = synthesised(replace(dev, archive=False))

    assert not any(name.startswith("Archive") for name in made.resources("AWS::S3::Bucket"))
    assert ARCHIVE_OUTPUT not in made.body["Outputs"]
    assert "/archive/*" not in str(made.resources("AWS::IAM::Policy"))
    told = {
        each["Environment"]["Variables"]["TIDINGS_ARCHIVE"]
        for each in made.resources("AWS::Lambda::Function").values()
    }
    assert told == {""}
