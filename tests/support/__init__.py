"""What tests of several folders share: servers, sessions, shops. Import it as `support`, in test modules and in the
processes that tests start.

Fixtures that every test may ask for (`tests/conftest.py` has them):

    s3           the S3 server of this run (`S3Server`): one for all workers, started when the first test asks for it.
                 The environment of the process has its address and keys, also for processes the test starts.
    s3_prefix    the URI of an empty prefix on it, `s3://tests/<unique>`: what most tests on a bucket need.
    spark        the Spark session of this run: one, because starting it takes longer than most tests. All tests that ask
                 for it run in the same worker. Views and settings that a test leaves behind meet the next one.
    workers_path the environment of Python processes that a test starts by itself, for example a Spark driver to kill:
                 they find `ontologia` and `support`, and have a cache of their own.

Asking for `s3`, `s3_prefix` or `spark` marks a test `s3` or `spark`. A fixture that has a server in some of its cases asks
for it with `request.getfixturevalue("s3")` and marks that case: `pytest.param("s3", marks=pytest.mark.s3)`.

A module whose fixture takes seconds to make keeps its tests in one worker: `pytestmark = pytest.mark.xdist_group("demo")`.

Modules: `*_shop` and `frames` the types and stores of a folder's tests, `shared_server` and `shared_session` the fixtures above,
`engine_cases` engines for the conformance suite, `cut_off` faults and kills, `gcs_server` a stand-in for GCS, `*_writers`, `*_worker`, `spark_cluster` and
`spark_victim` programs that tests start, `tpch_reference` the answers of another engine, `imports` who imports whom.
"""
