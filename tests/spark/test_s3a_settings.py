"""What Spark's S3A is told of a bucket, from the settings and credentials that we use for it ourselves."""

from __future__ import annotations

import pytest

from ontologia.objects import open_objects
from ontologia.spark import s3a


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
    """No settings but those of a test."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("ENDPOINT_URL", "ENDPOINT_URL_S3", "WEB_IDENTITY_TOKEN_FILE", "S3_FORCE_PATH_STYLE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def settings_for(uri="s3://shop/onto", **options):
    """Settings by their short names."""
    found = s3a.settings(open_objects(uri, **options).backend.connect)
    bucket = f"fs.s3a.bucket.{uri.split('/')[2]}."
    assert found is None or all(name.startswith(bucket) for name in found)
    return found and {name.removeprefix(bucket): value for name, value in found.items()}


def test_a_machine_with_a_role_is_left_to_find_it():
    assert settings_for(region="eu-west-1") == {"endpoint.region": "eu-west-1", "path.style.access": "false"}


def test_keys_of_the_environment_with_and_without_a_token(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert "access.key" not in settings_for()  # half a key is none
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    plain = settings_for()
    assert (plain["access.key"], plain["secret.key"], "session.token" in plain) == ("key", "secret", False)
    assert plain["aws.credentials.provider"].endswith(".SimpleAWSCredentialsProvider")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert settings_for()["session.token"] == "token"
    assert settings_for()["aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")


@pytest.mark.parametrize(("endpoint", "encrypted"), [("http://127.0.0.1:8333", "false"), ("https://minio", "true")])
def test_an_endpoint_of_ones_own(endpoint, encrypted):
    found = settings_for(endpoint_url=endpoint)
    assert (found["endpoint"], found["connection.ssl.enabled"]) == (endpoint, encrypted)
    assert found["path.style.access"] == "true"


def test_a_bucket_with_dots_is_addressed_by_path():
    assert settings_for("s3://my.shop/onto")["path.style.access"] == "true"


def test_a_profile_with_keys_and_a_region(tmp_path):
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    (tmp_path / "config").write_text("[default]\nregion = eu-central-1\n")
    found = settings_for()
    assert (found["access.key"], found["endpoint.region"]) == ("key", "eu-central-1")


def test_credentials_that_only_we_can_resolve_are_not_handed_over(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[default]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = y\n")
    assert settings_for() is None
    (tmp_path / "config").unlink()
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    assert settings_for() is None
