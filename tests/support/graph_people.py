"""People who know and visit each other, as classes, and a graph of three of them."""

from ontologia import Entity, Field, Relation
from ontologia.omnigraph import Omnigraph


class Person(Entity):
    name: Field[str] = Field(primary_key=True)
    age: Field[int] = Field(default=0, index="btree")
    bio: Field[str | None] = Field(default=None, index="fts")
    place: Field[list[float] | None] = Field(default=None, index="vector", dimensions=2)


class Knows(Relation[Person, Person]):
    since: Field[int] = 2020


class Visit(Relation[Person, Person]):
    day: Field[str] = Field(instance_key=True)
    note: Field[str] = ""


TYPES = [Person, Knows, Visit]


def people_graph(uri):
    """Three people, two of whom know the next."""
    graph = Omnigraph.init(uri, TYPES, actor="ann")
    with graph.transaction(message="first") as tx:
        tx.upsert([Person(name="a", age=1, bio="likes old maps"), Person(name="b", age=2), Person(name="c", age=3)])
        tx.upsert([Knows(left_key="a", right_key="b"), Knows(left_key="b", right_key="c", since=2021)])
    return graph


def names(graph, **where):
    return [person.name for person in graph.query(**where).entities(Person).collect()]
