"""What a pipeline file means, before Spark is asked."""

from __future__ import annotations

from ontologia.spark.pipeline_file import PipelineFile


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
