"""`onto apiary`: frames from the console. Reads write nothing, writes can be previewed."""

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from ontologia.apiary import Apiary
from ontologia.cli import main
from support.frames import NAME, readings, sensors


@pytest.fixture
def root(tmp_path):
    where = tmp_path / "frames"
    with Apiary("test", str(where)) as ap:
        frame = sensors(ap)
        for number in range(3):
            frame.write(readings(("north", 38.5 + number, number)))
    return where


def run(capsys, root, *arguments):
    code = main(["apiary", *arguments, "--storage", str(root)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def facts(capsys, root, *arguments):
    code, out, _ = run(capsys, root, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_names_are_listed(capsys, root):
    assert facts(capsys, root, "hives") == ["analytics"]
    assert facts(capsys, root, "boxes", "analytics") == ["sensors"]
    (frame,) = facts(capsys, root, "frames", "analytics.sensors")
    assert (frame["frame"], frame["rows"], frame["cells"]) == (NAME, 3, 3)


def test_sql_prints_a_table_or_json(capsys, root):
    query = f"SELECT id FROM {NAME} WHERE temp > 40"
    assert run(capsys, root, "sql", query)[1].split() == ["ID", "2"]
    assert facts(capsys, root, "sql", query) == [{"id": 2}]


def test_sql_that_would_write_fails_with_one_line(capsys, root):
    code, out, err = run(capsys, root, "sql", f"DELETE FROM {NAME}")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "frame.delete" in err


def test_reads_write_nothing(capsys, root):
    before = sorted(root.rglob("*"))
    for arguments in (
        ["hives"],
        ["show", NAME],
        ["history", NAME],
        ["diff", NAME, "1", "2"],
        ["status"],
        ["compact", NAME, "--force"],
        ["vacuum", NAME, "--older-than", "1h"],
        ["create", "other"],
        ["sql", f"SELECT * FROM {NAME}"],
    ):
        assert run(capsys, root, *arguments)[0] == 0, arguments
    assert sorted(root.rglob("*")) == before


def test_compact_and_vacuum_do_it_when_told(capsys, root):
    assert facts(capsys, root, "compact", NAME, "--force")["applied"] is False
    assert facts(capsys, root, "compact", NAME, "--force", "--apply")["cells_written"] == 1
    assert facts(capsys, root, "vacuum", NAME, "--older-than", "0s", "--apply")["kept_versions"] == {
        "first": 4,
        "last": 4,
    }
    assert facts(capsys, root, "history", NAME, "--last", "1")[0]["operation"] == "compact"


def test_a_frame_is_created_with_columns_and_partitions(capsys, root):
    code, _, _ = run(
        capsys,
        root,
        "create",
        "a.b.c",
        "--column",
        "k:int64!",
        "--column",
        "r:string",
        "--partition-by",
        "r",
        "--apply",
    )
    assert code == 0
    shown = facts(capsys, root, "show", "a.b.c")
    assert shown["columns"][0] == {"name": "k", "type": "int64", "nullable": False}
    assert shown["partition_by"] == ["r"]


def test_what_is_there_already_is_not_said_to_be_created(capsys, root):
    columns = ["--column", "k:int64!"]
    for name, more in (("h", []), ("h.b", []), ("h.b.f", columns)):
        assert run(capsys, root, "create", name, *more)[1] == f"would create {name}\n"
        assert run(capsys, root, "create", name, *more, "--apply")[1] == f"created {name}\n"
        for apply in ([], ["--apply"]):
            code, out, err = run(capsys, root, "create", name, *more, *apply)
            assert (code, out, "with --apply" in err) == (0, f"{name} is there already\n", False)
    assert facts(capsys, root, "create", "h")["existed"] is True


def test_the_storage_is_named_before_the_command_or_after_it(capsys, root):
    for words in (["--storage", str(root), "hives"], ["hives", "--storage-uri", str(root)]):
        assert main(["apiary", *words]) == 0
        assert capsys.readouterr().out.split() == ["HIVE", "analytics"]
    assert main(["--db", "shop.db", "apiary", "hives"]) == 2
    assert "name it with --storage" in capsys.readouterr().err
    assert main(["apiary", "hives", "--storage", ""]) == 2
    assert "--storage is empty" in capsys.readouterr().err


def test_only_what_is_empty_in_a_csv_is_null(capsys, root, tmp_path):
    run(capsys, root, "create", "a.b.c", "--column", "s:string", "--column", "temp:float64", "--apply")
    (tmp_path / "texts.csv").write_text('s,temp\nNA,1\nnull,inf\nN/A,2\nnan,3\n"",4\n,\n')
    assert run(capsys, root, "write", "a.b.c", str(tmp_path / "texts.csv"), "--apply")[0] == 0
    rows = facts(capsys, root, "sql", "SELECT s FROM a.b.c WHERE temp IS NOT NULL ORDER BY s")
    assert [row["s"] for row in rows] == ["", "N/A", "NA", "nan", "null"]
    assert facts(capsys, root, "sql", "SELECT s FROM a.b.c WHERE temp IS NULL") == [{"s": None}]


def test_the_rows_of_a_difference_are_shown(capsys, root):
    found = facts(capsys, root, "diff", NAME, "1", "2")
    assert [(row["change"], row["id"]) for row in found["rows"]] == [("added", 1)]


def test_status_shows_nodes_and_measured_memory(capsys, root):
    with Apiary("node", str(root)):
        _, out, _ = run(capsys, root, "status")
        found = facts(capsys, root, "status")
    assert "TEMPERATURE" in out
    assert found["swarm"]["alive"] == 1
    assert 0 < found["machine"]["memory_pressure"] < 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["frames", "analytics"], 2, "HIVE.BOX"),
        (["show", "analytics.sensors.x"], 1, "frames in analytics.sensors: temperature"),
        (["create", "a.b.c"], 2, "--column NAME:TYPE"),
        (["create", "a.b.c", "--column", "x"], 2, "NAME:TYPE"),
        (["vacuum", NAME, "--older-than", "soon"], 1, "is not an age"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(capsys, root, arguments, code, says):
    found, _, err = run(capsys, root, *arguments)
    assert found == code
    assert says in err


def test_the_command_apiary_is_the_group(monkeypatch, capsys, root):
    from ontologia import cli

    monkeypatch.setattr("sys.argv", ["apiary", "hives", "--storage", str(root), "--json"])
    assert cli.apiary() == 0
    assert json.loads(capsys.readouterr().out) == ["analytics"]
    monkeypatch.setattr("sys.argv", ["apiary", "nope"])
    assert cli.apiary() == 2
    assert capsys.readouterr().err == "apiary: No such command 'nope'. See apiary --help\n"


def test_a_place_without_an_apiary_is_said(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for place in ("nope", "empty", "file"):
        code, out, err = run(capsys, tmp_path / place, "hives")
        assert (code, out, "there is no apiary at" in err) == (5, "", True), place
    assert not (tmp_path / "nope").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["../x"], "name a hive, a box"),
        (["a/b"], "is not a name for a hive"),
        (["h.x=y"], "is not a name for a box"),
        (["h.b.f", "--column", "a:nonsense"], "there is no type 'nonsense'"),
        (["h.b.f", "--column", "a:int64", "--column", "a:string"], "names a column twice"),
        (["h.b.f", "--column", "a:int64", "--partition-by", "b"], "there is no column 'b'"),
        ([NAME, "--column", "a:int64"], "exists with other columns"),
    ],
    ids=str,
)
def test_a_preview_refuses_what_cannot_be_created(capsys, root, arguments, says):
    code, out, err = run(capsys, root, "create", *arguments)
    assert (code != 0, out) == (True, "")
    assert says in err


def test_a_plan_is_printed_as_it_is_drawn(capsys, root):
    out = run(capsys, root, "sql", f"EXPLAIN ANALYZE SELECT * FROM {NAME} WHERE temp > 40")[1]
    assert "\\n" not in out
    assert ["cells_scanned", "1"] in [line.split() for line in out.splitlines()]
    assert "Query Profiling Information" in out


def test_status_shows_temperature_and_bees(capsys, root):
    out = run(capsys, root, "status")[1]
    found = dict(line.split(maxsplit=1) for line in out.splitlines() if line.split()[0] in ("bees", "temperature"))
    assert set(found) == {"bees", "temperature"}


def test_a_node_that_is_asked_to_end_takes_its_heartbeat_away(root):
    node = subprocess.Popen(
        [sys.executable, "-m", "ontologia.cli", "apiary", "start", "--storage", str(root)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert any("is running" in line for line in node.stderr)
    assert len(list((root / "_heartbeats").iterdir())) == 1
    node.terminate()
    node.communicate(timeout=30)
    assert not list(root.glob("_heartbeats/*"))


def test_files_are_written_as_one_version_with_the_types_of_the_frame(capsys, root, tmp_path):
    table = tmp_path / "more.csv"
    table.write_text('region,temp,id,note\n007,1,10,x\n"a,b",2.5,11,\n')
    code, out, err = run(capsys, root, "write", NAME, str(table))
    assert (code, out.strip()) == (0, f"would write 2 rows to {NAME}")
    assert "has no column note: dropped" in err
    assert facts(capsys, root, "write", NAME, str(table), "--apply") == {
        "applied": True,
        "rows": 2,
        "version": 4,
        "cells": 2,
    }
    lines = tmp_path / "more.jsonl"
    lines.write_text('{"region": "007", "id": 12}\n')
    facts(capsys, root, "write", NAME, str(lines), "--apply")
    query = f"SELECT region, temp, id FROM {NAME} WHERE id >= 10 ORDER BY id"
    assert [tuple(row.values()) for row in facts(capsys, root, "sql", query)] == [
        ("007", 1.0, 10),
        ("a,b", 2.5, 11),
        ("007", None, 12),
    ]
    columns = tmp_path / "all.parquet"
    pq.write_table(readings(("north", 1.0, 1)), columns)
    assert facts(capsys, root, "write", NAME, str(columns), "--overwrite", "--apply")["rows"] == 1
    assert facts(capsys, root, "sql", f"SELECT count(*) AS n FROM {NAME}") == [{"n": 1}]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "region,temp,id\nn,1,x\n", "invalid value 'x'"),
        ("late.csv", "region,temp,id\n" + "n,1,1\n" * 300_000 + "n,1,x\n", "invalid value 'x'"),
        ("a.csv", 'region,temp,id\nn,1,1\n"n,1,2\n', "a quote that is opened in line 3 is never closed"),
        ("a.csv", "region,temp\nn,1\n", "needs a value for id"),
        ("a.csv", "region,temp,id\n,1,1\n", "partitioned by 'region'"),
        ("a.jsonl", '{"region": "n", "id": 1}\n{"region"', "cannot be read"),
        ("a.parquet", "no parquet", "cannot be read"),
        ("a.txt", "x", "a file is .parquet"),
    ],
    ids=["value", "late", "quote", "missing", "null", "cut", "other", "kind"],
)
@pytest.mark.parametrize("more", [[], ["--apply"]], ids=["preview", "apply"])
@pytest.mark.thorough
def test_a_file_that_cannot_be_read_whole_is_not_written_in_part(capsys, root, tmp_path, name, content, says, more):
    (tmp_path / name).write_text(content)
    code, _, err = run(capsys, root, "write", NAME, str(tmp_path / name), *more)
    assert (code != 0, says in err, "Traceback" in err) == (True, True, False), err
    assert facts(capsys, root, "history", NAME, "--last", "1")[0]["version"] == 3
