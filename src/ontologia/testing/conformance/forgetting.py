"""History that is given up, for engines that can; others refuse, and lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ontologia.errors import HistoryForgottenError, ValidationError
from ontologia.model import Entity, Field
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit
from ontologia.testing.reference import ReferenceStore


class Draft(Entity):
    """Something that is written again and again."""

    id: Field[int] = Field(primary_key=True)
    text: Field[str]


def forget(base: int, session: Session, reference: ReferenceStore) -> None:
    """Give up history before a commit, in a store and in the reference model."""
    plan: Any = session.forget(base)
    assert plan.rows == reference.superseded(base)
    report: Any = session.forget(base, dry_run=False, token=plan.token)
    assert report.commit_id == reference.forget(base)


class ForgetConformance(ConformanceSuite):
    """Forgetting; for engines whose capabilities say `forgetting`."""

    def written(self, store: StoreUnderTest) -> Session:
        session = store.session(Draft)
        for number in range(1, 5):
            commit(session, Draft(id=1, text=str(number)), Draft(id=2, text="same"))
        return session

    def test_the_state_at_the_base_stays_and_earlier_ones_are_an_error(self, store: StoreUnderTest) -> None:
        session = self.written(store)
        if not session.engine.capabilities.forgetting:
            pytest.skip("this engine keeps all of history")
        plan: Any = session.forget(3)
        report: Any = session.forget(3, dry_run=False, token=plan.token)
        assert (plan.rows, report.commit_id) == (2, 5)
        drafts = session.query().entities(Draft)
        assert [draft.text for draft in drafts.as_of(3).collect()] == ["3", "same"]
        assert [draft.text for draft in drafts.with_history().collect()] == ["same", "3", "4"]
        with pytest.raises(HistoryForgottenError, match="the state at commit 2 was given up"):
            drafts.as_of(2).collect()
        with pytest.raises(HistoryForgottenError, match="what commit 3 changed was given up"):
            session.list_commit_changes(3)
        assert [change["operation"] for change in session.list_commit_changes(4)] == ["update_version"]

    def test_an_engine_that_cannot_forget_refuses_and_loses_nothing(self, store: StoreUnderTest) -> None:
        session = self.written(store)
        if session.engine.capabilities.forgetting:
            pytest.skip("this engine can")
        with pytest.raises(ValidationError, match="can forget their early history"):
            session.forget(3)
        assert len(session.query().entities(Draft).with_history().collect()) == 5
