"""The examples of the design, as they are written there, on both engines."""

import pytest

from ontologia import (
    Entity,
    Field,
    Meta,
    OntologiaConfig,
    Ontology,
    Relation,
    Session,
    count,
    left,
    right,
    sum,
    upgrader,
)


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str] = "Basic"
    email: Field[str | None] = None
    age: Field[int] = 0
    address: Field[dict[str, dict[str, str]]] = Field(default_factory=dict)
    orders: Field[list[dict[str, str]]] = Field(default_factory=list)


class Product(Entity):
    id: Field[str] = Field(primary_key=True)
    price: Field[float] = 0.0


class Subscription(Relation[Customer, Product]):
    seats: Field[int] = 1


class Visit(Relation[Customer, Product]):
    day: Field[str] = Field(instance_key=True)


TYPES = {"entity_types": [Customer, Product], "relation_types": [Subscription, Visit]}


def test_the_api_sketch(path):
    cfg = OntologiaConfig(runtime_id="writer-a", s3_region="us-west-2", s3_lock_timeout_ms=5000, s3_lease_ttl_ms=30000)
    onto = Ontology(
        storage_uri=f"sqlite:///{path}",
        config=cfg,
        entity_types=[Customer, Product],
        relation_types=[Subscription],
    )
    with onto.session() as s:
        s.ensure(Customer(id="c1", name="Alice", tier="Gold"))
        s.commit()
    found = onto.query().entities(Customer).collect()
    onto.close()
    assert found == [Customer(id="c1", name="Alice", tier="Gold")]


def test_the_sketch_writes_one_commit_under_its_runtime_id(path):
    with Ontology(storage_uri=f"sqlite:///{path}", config=OntologiaConfig(runtime_id="writer-a"), **TYPES) as onto:
        with onto.session() as s:
            s.ensure(Customer(id="c1", name="Alice", tier="Gold"))
            s.commit()
        assert [(commit["id"], commit["runtime_id"]) for commit in onto.list_commits()] == [(1, "writer-a")]


def test_existing_calls_with_a_path_go_on_working(path):
    with Ontology(db_path=path, entity_types=[Customer]) as onto, onto.session() as session:
        session.ensure(Customer(id="c1", name="Alice"))
    with Ontology(path) as onto:
        assert onto.query().entities(Customer).count() == 1


@pytest.fixture
def onto(path):
    with Ontology(path, **TYPES) as onto:
        with onto.session() as session:
            session.ensure(
                [
                    Customer(
                        id="c1",
                        name="Alice",
                        tier="Gold",
                        age=40,
                        email="a@x.org",
                        address={"home": {"city": "Rome"}},
                        orders=[{"sku": "a1"}, {"sku": "b2"}],
                    ),
                    Customer(id="c2", name="Bob", age=20, address={"home": {"city": "Oslo"}}),
                    Customer(id="c3", name="100%_sure", age=30),
                    Product(id="p1", price=10.0),
                    Product(id="p2", price=20.0),
                    Subscription(left_key="c1", right_key="p1", seats=5),
                    Subscription(left_key="c2", right_key="p2", seats=2),
                    Subscription(left_key="c1", right_key="p2", seats=1),
                    Visit(left_key="c1", right_key="p1", day="monday"),
                    Visit(left_key="c1", right_key="p1", day="tuesday"),
                ]
            )
        yield onto


def ids(query):
    return [customer.id for customer in query.collect()]


FILTERS = {
    "ge": (Customer.age >= 30, ["c1", "c3"]),
    "eq": (Customer.age == 20, ["c2"]),
    "ne": (Customer.age != 20, ["c1", "c3"]),
    "gt": (Customer.age > 30, ["c1"]),
    "lt": (Customer.age < 30, ["c2"]),
    "le": (Customer.age <= 30, ["c2", "c3"]),
    "startswith": (Customer.name.startswith("Al"), ["c1"]),
    "endswith": (Customer.name.endswith("ob"), ["c2"]),
    "contains": (Customer.name.contains("lic"), ["c1"]),
    "percent is a percent": (Customer.name.contains("%"), ["c3"]),
    "underscore is an underscore": (Customer.name.contains("_"), ["c3"]),
    "in": (Customer.id.in_(["c1", "c9"]), ["c1"]),
    "in nothing": (Customer.id.in_([]), []),
    "is_null": (Customer.email.is_null(), ["c2", "c3"]),
    "is_not_null": (Customer.email.is_not_null(), ["c1"]),
    "path": (Customer.address.path("home.city") == "Rome", ["c1"]),
    "items": (Customer.address["home"]["city"] == "Oslo", ["c2"]),
    "any_path": (Customer.orders.any_path("sku") == "b2", ["c1"]),
    "and": ((Customer.age > 20) & (Customer.age < 40), ["c3"]),
    "or": ((Customer.age == 20) | (Customer.age == 40), ["c1", "c2"]),
    "not": (~(Customer.age == 20), ["c1", "c3"]),
}


@pytest.mark.parametrize(("predicate", "expected"), FILTERS.values(), ids=list(FILTERS))
def test_each_filter_of_the_contract_finds_its_rows(onto, predicate, expected):
    assert ids(onto.query().entities(Customer).where(predicate)) == expected


def test_endpoints_can_be_filtered_on(onto):
    query = (
        onto.query().relations(Subscription).where(left(Subscription).tier == "Gold", right(Subscription).price > 10)
    )
    assert [(found.left_key, found.right_key) for found in query.collect()] == [("c1", "p2")]


def test_relations_come_with_their_endpoints(onto):
    found = onto.query().relations(Subscription).where(Subscription.seats == 5).first()
    assert (found.left.name, found.right.price) == ("Alice", 10.0)


def test_parallel_relations_are_kept_apart_by_their_instance_key(onto):
    assert [visit.instance_key for visit in onto.query().relations(Visit).collect()] == ["monday", "tuesday"]


def test_order_limit_and_offset(onto):
    query = onto.query().entities(Customer).order_by(Customer.age, descending=True)
    assert (ids(query.limit(1)), ids(query.offset(1).limit(1)), ids(query.offset(2))) == (["c1"], ["c3"], ["c2"])


def test_first_of_nothing_is_none(onto):
    assert onto.query().entities(Customer).where(Customer.age > 1000).first() is None


def test_scalar_aggregates(onto):
    query = onto.query().entities(Customer)
    numbers = (
        query.count(),
        query.sum(Customer.age),
        query.avg(Customer.age),
        query.min(Customer.age),
        query.max(Customer.age),
    )
    assert numbers == (3, 90, 30.0, 20, 40)


def test_count_where_and_avg_len(onto):
    query = onto.query().entities(Customer)
    assert (query.count_where(Customer.age > 20), query.avg_len(Customer.orders)) == (2, pytest.approx(2 / 3))


def test_grouped_aggregates_with_having(onto):
    groups = onto.query().relations(Subscription).group_by(Subscription.left_key).having(count() > 1)
    assert groups.agg(number=count(), total=sum(Subscription.seats)) == [{"left_key": "c1", "number": 2, "total": 6}]


def test_a_traversal_gives_paths(onto):
    paths = onto.query().entities(Customer).where(Customer.id == "c1").via(Subscription).collect()
    assert [(path.source.id, path.relations[0].seats, path.end.id) for path in paths] == [
        ("c1", 5, "p1"),
        ("c1", 1, "p2"),
    ]


def test_a_traversal_without_relations_gives_the_entities_reached(onto):
    ends = onto.query().entities(Customer).via(Subscription).without_relations().collect()
    assert [product.id for product in ends] == ["p1", "p2"]


@pytest.mark.parametrize("ending", ["count", "sum", "avg", "min", "max", "group_by", "count_where", "avg_len"])
def test_aggregation_on_a_traversal_is_refused(onto, ending):
    traversal = onto.query().entities(Customer).via(Subscription)
    with pytest.raises((ValueError, TypeError)):
        getattr(traversal, ending)(*(() if ending == "count" else (Customer.age,)))


def test_results_as_tables(onto):
    query = onto.query().entities(Product)
    rows = [{"id": "p1", "price": 10.0}, {"id": "p2", "price": 20.0}]
    assert (query.to_arrow().to_pylist(), query.to_pandas().to_dict("records"), query.to_polars().to_dicts()) == (
        rows,
    ) * 3


def test_the_four_modes_of_time(onto):
    with onto.session() as session:
        session.ensure(Product(id="p1", price=11.0))
    query = onto.query().entities(Product).where(Product.id == "p1")
    prices = [
        [product.price for product in asked.collect()]
        for asked in (query, query.as_of(1), query.with_history(), query.history_since(1))
    ]
    assert prices == [[11.0], [10.0], [10.0, 11.0], [11.0]]


def test_meta_of_an_entity_and_of_a_relation(onto):
    entity = onto.query().entities(Product).first()
    relation = onto.query().relations(Visit).first()
    assert (entity.meta(), relation.meta()) == (
        Meta(commit_id=1, type_name="Product", key="p1"),
        Meta(commit_id=1, type_name="Visit", left_key="c1", right_key="p1", instance_key="monday"),
    )


def test_a_session_alone_is_the_same_thing(path):
    with Session(path, entity_types=[Customer]) as session:
        session.ensure(Customer(id="c1", name="Alice"))
    with Session(f"sqlite:///{path}", entity_types=[Customer]) as session:
        assert ids(session.query().entities(Customer)) == ["c1"]


def test_an_upgrader_is_registered_by_its_decorator(path):
    class Grown(Entity, name="GrowingType"):
        id: Field[str] = Field(primary_key=True)
        size: Field[int]

    class Growing(Entity, name="GrowingType"):
        id: Field[str] = Field(primary_key=True)

    @upgrader("GrowingType", from_version=1)
    def grow(row):
        return {**row, "size": 7}

    with Ontology(path, entity_types=[Growing]) as onto, onto.session() as session:
        session.ensure(Growing(id="g"))
    with Ontology(path, entity_types=[Grown]) as onto:
        onto.migrate(dry_run=False, token=onto.migrate().token)
        assert onto.query().entities(Grown).first().size == 7


BAD_QUERIES = {
    "negative limit": lambda query: query.limit(-1),
    "negative offset": lambda query: query.offset(-1),
    "limit that is not a number": lambda query: query.limit("1"),
    "limit that is a truth value": lambda query: query.limit(True),
    "commit that is not a number": lambda query: query.as_of("x"),
    "field of another type": lambda query: query.where(Product.price > 1),
    "order by a field of another type": lambda query: query.order_by(Product.price),
    "aggregate of another type": lambda query: query.sum(Product.price),
    "sum of text": lambda query: query.sum(Customer.name),
    "something that is not a filter": lambda query: query.where(True),
    "endpoint in an entity query": lambda query: query.where(left(Subscription).tier == "Gold"),
    "group by nothing": lambda query: query.group_by(),
    "no aggregate": lambda query: query.group_by(Customer.tier).agg(),
    "having that is not a condition": lambda query: query.group_by(Customer.tier).having(Customer.age > 3),
    "via something that does not touch it": lambda query: query.via(Subscription).via(Subscription).via(Customer),
}


@pytest.mark.parametrize("build", BAD_QUERIES.values(), ids=list(BAD_QUERIES))
def test_a_query_that_makes_no_sense_is_refused_when_it_is_built(onto, build):
    with pytest.raises((TypeError, ValueError)):
        build(onto.query().entities(Customer))


def test_an_unknown_field_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = Customer.nickname


@pytest.mark.parametrize("thing", [Product(id="x"), Subscription, str, None, "Customer"])
def test_querying_entities_of_something_else_is_a_type_error(onto, thing):
    with pytest.raises(TypeError):
        onto.query().entities(thing)
