"""One store, opened again and by several at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ontologia.errors import StorageBackendError
from ontologia.testing.conformance.answers import make_plain
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit
from ontologia.testing.conformance.questions import QUESTIONS
from ontologia.testing.conformance.shop import Customer, Follows, Product


class SharingConformance(ConformanceSuite):
    """Reopening and sharing."""

    def test_a_store_that_is_opened_again_gives_the_same_answers(self, store: StoreUnderTest) -> None:
        store.fill()
        store.close()
        root = store.session().query()
        wrong = [question.name for question in QUESTIONS[::7] if not question.is_answered(root)]
        assert wrong == []

    def test_a_store_that_is_opened_again_has_the_same_log(self, store: StoreUnderTest) -> None:
        before = store.fill().list_commits()
        store.close()
        assert store.session().list_commits() == before

    def test_a_store_that_was_closed_says_so_and_takes_nothing(self, store: StoreUnderTest) -> None:
        ontology = store.ontology()
        with ontology.session() as session:
            session.ensure(Customer(id="a", name="A"))
        late = ontology.session()
        late.ensure(Customer(id="b", name="B"))
        ontology.close()
        asked: list[Callable[[], object]] = [
            late.commit,
            ontology.query().entities(Customer).count,
            ontology.list_commits,
            ontology.validate,
            lambda: ontology.repository.acquire_lock("me", 1_000),
        ]
        for ask in asked:
            with pytest.raises(StorageBackendError, match=r": this store is closed$"):
                ask()
        assert store.session().query().entities(Customer).count() == 1

    def test_an_ontology_and_a_session_see_the_same(self, store: StoreUnderTest) -> None:
        session, ontology = store.fill(), store.ontology()
        assert make_plain(ontology.query().entities(Customer).collect()) == make_plain(
            session.query().entities(Customer).collect()
        )

    def test_a_session_of_an_ontology_commits_to_its_store(self, store: StoreUnderTest) -> None:
        ontology = store.ontology()
        with ontology.session() as session:
            session.ensure(Customer(id="a", name="A"))
        assert ontology.query().entities(Customer).count() == 1

    def test_a_reader_sees_what_another_session_committed(self, store: StoreUnderTest) -> None:
        writer, reader = store.session(), store.session()
        before = reader.query().entities(Customer).count()
        commit(writer, Customer(id="a", name="A"))
        assert (before, reader.query().entities(Customer).count()) == (0, 1)

    def test_two_sessions_take_turns_in_one_line_of_commits(self, store: StoreUnderTest) -> None:
        one, other = store.session(), store.session()
        ids = [commit(session, Customer(id=key, name=key)) for session, key in ((one, "a"), (other, "b"), (one, "c"))]
        assert (ids, other.query().entities(Customer).count()) == ([1, 2, 3], 3)

    def test_what_another_session_wrote_already_is_no_change(self, store: StoreUnderTest) -> None:
        one, other = store.session(), store.session()
        one.ensure(Customer(id="a", name="A"))
        other.ensure(Customer(id="a", name="A"))
        assert (one.commit(), other.commit()) == (1, None)

    def test_a_new_type_of_another_session_can_be_written_to(self, store: StoreUnderTest) -> None:
        one, other = store.session(), store.session()
        commit(one, Product(sku=1, price=1.0))
        commit(other, Product(sku=2, price=2.0), Follows(left_key="a", right_key="b"))
        assert (one.query().entities(Product).count(), one.query().relations(Follows).count()) == (2, 1)

    def test_storage_info_names_the_engine(self, store: StoreUnderTest) -> None:
        session = store.session()
        info = session.storage_info()
        assert (info["backend"], info["engine_version"]) == (
            session.engine.backend,
            session.engine.engine_version,
        )
