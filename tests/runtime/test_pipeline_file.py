"""What a pipeline file means, before Spark is asked."""

from __future__ import annotations

import pytest

from ontologia import ValidationError
from ontologia.runtime.loading.pipeline_file import PipelineFile


def test_paths_are_meant_from_the_folder_of_the_file(tmp_path):
    file = tmp_path / "nightly.toml"
    file.write_text(
        '[target]\ndb = "shop.db"\nmodels = ["models.py", "app/models", "/opt/models.py", "shop.models"]\n'
        '[[load]]\nsource = "people.csv"\ninto = "Person"\n'
    )
    found = PipelineFile.read(file)
    assert found.target == str(tmp_path / "shop.db")
    assert found.models == [
        str(tmp_path / "models.py"),
        str(tmp_path / "app/models"),
        "/opt/models.py",
        "shop.models",
    ]


@pytest.mark.parametrize(
    ("options", "load", "message"),
    [
        ('on_invalid = "Abort"', "", "nightly.toml: on_invalid is one of abort, quarantine, not 'Abort'"),
        ('on_conflict = "merge"', "", "nightly.toml: on_conflict is one of abort, skip, upsert, not 'merge'"),
        ("", 'on_duplicate = "first"', "nightly.toml: on_duplicate is one of error, last, not 'first'"),
    ],
)
def test_choices_that_there_are_not_are_refused_with_those_that_there_are(tmp_path, options, load, message):
    file = tmp_path / "nightly.toml"
    file.write_text(f'[options]\n{options}\n[[load]]\nsource = "people.csv"\ninto = "Person"\n{load}\n')
    with pytest.raises(ValidationError, match=message):
        PipelineFile.read(file)
