"""What graphs cost on a bucket, in requests: ours and Lance's, counted on their way to the server."""

import re

import pytest

from ontologia import OntologiaConfig
from ontologia.objects import Location
from ontologia.omnigraph import branches
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.publisher import _COMPACT_AFTER
from support.forwarder import forwarded
from support.graph_shop import FIRM, PERSON, contents, people, put

REQUEST = re.compile(rb"(?:GET|PUT|POST|HEAD|DELETE) /\S* HTTP/1\.1\r\n")


@pytest.fixture
def detour(s3):
    """The S3 server under an address that no environment knows."""
    with forwarded(s3.endpoint_url) as forwarder:
        yield forwarder


@pytest.fixture
def graph(s3_prefix, detour):
    config = OntologiaConfig(s3_endpoint_url=detour.url)
    return Graph.init(Location(s3_prefix, config).open_objects(), config)


def requests_of(detour, work):
    before = len(detour.said)
    work()
    return len(REQUEST.findall(detour.said[before:]))


def commit(graph, number):
    put(graph, {PERSON: people(a=number)})


def one_round(detour, graph):
    """The requests of as many commits as there are between two compactions of the manifest, on average."""
    costs = [requests_of(detour, lambda number=number: commit(graph, number)) for number in range(_COMPACT_AFTER)]
    return sum(costs) / len(costs)


def test_lance_goes_to_the_endpoint_that_the_graph_was_given(graph, detour):
    """Not to the one in the environment, where the other half of the graph would lie."""
    before = len(detour.said)
    commit(graph, 1)
    said = detour.said[before:]
    assert b"/__manifest/data/" in said
    assert b"/nodes/" in said


def check_depth(graph, detour, depth):
    commit(graph, 0)
    shallow = one_round(detour, graph)
    for number in range(depth - 2 * _COMPACT_AFTER):
        commit(graph, number)
    deep = one_round(detour, graph)
    assert deep <= 1.3 * shallow
    assert contents(graph)[PERSON]["a"]["age"] == _COMPACT_AFTER - 1


def test_a_commit_costs_the_same_after_many_others(graph, detour):
    check_depth(graph, detour, 2 * _COMPACT_AFTER)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_commit_costs_the_same_after_a_thousand_others(graph, detour):
    check_depth(graph, detour, 1000)


@pytest.mark.slow
def test_a_branch_costs_the_same_however_much_there_is(graph, detour):
    """Sixteen of them are Lance's own, for the two datasets that the format has a branch of; two are the lease's."""
    commit(graph, 0)
    first = requests_of(detour, lambda: branches.create_branch(graph, "one"))
    for number in range(30):
        put(graph, {PERSON: people(a=number), FIRM: people(x=number)})
    assert requests_of(detour, lambda: branches.create_branch(graph, "two")) <= first <= 21


def test_a_state_that_did_not_change_is_known_by_one_request(graph, detour):
    commit(graph, 0)
    graph.manifest()
    assert requests_of(detour, graph.manifest) == 1
