"""Turns of writers: given back, taken over from calls that an interrupt ended, and kept where that is said."""

from __future__ import annotations

import threading

import pytest

from ontologia.engines.turns import Turn


def test_a_turn_that_an_interrupt_left_behind_is_taken_over():
    turn = Turn()

    def interrupted() -> None:
        assert turn.take(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not turn.is_wanted()
    assert turn.take(5)


def test_a_turn_is_waited_for_while_the_call_that_has_it_runs():
    turn, entered, leave = Turn(), threading.Event(), threading.Event()

    def holder() -> None:
        turn.take(1)
        entered.set()
        leave.wait(30)
        turn.give_back()

    thread = threading.Thread(target=holder)
    thread.start()
    entered.wait(30)
    assert not turn.take(0.2)
    leave.set()
    thread.join()
    assert turn.take(5)


def test_a_kept_turn_outlives_the_call_that_took_it():
    turn = Turn()

    def begin() -> None:
        turn.take(1)
        turn.keep()

    begin()
    assert turn.is_wanted()
    assert not turn.take(0.1)
    turn.give_back()
    assert turn.take(1)
