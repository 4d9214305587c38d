"""Which of many ranges may have a text, or meet another range, against plain comparisons."""

import random

import numpy as np

from ontologia.files.spans import Spans


def some_text(chance):
    return "".join(chance.choice("ab\0ü\U0001f600") for _ in range(chance.randrange(4))).encode()


def some_range(chance):
    low, high = sorted((some_text(chance), some_text(chance)))
    return (None if chance.random() < 0.1 else low, None if chance.random() < 0.1 else high)


def meets(ends, low, high):
    """numpy, and so a span, takes no notice of zeros at the end of a text."""
    first, last = (None if end is None else end.rstrip(b"\0") for end in ends)
    return (first is None or first <= high.rstrip(b"\0")) and (last is None or last >= low.rstrip(b"\0"))


def test_spans_meet_what_their_ends_say_and_lose_none_for_zeros_at_the_end():
    chance = random.Random(1)
    for _ in range(300):
        ranges = [some_range(chance) for _ in range(chance.randrange(6))]
        low, high = sorted((some_text(chance), some_text(chance)))
        texts = sorted({some_text(chance) for _ in range(chance.randrange(5))})
        spans = Spans.of(ranges)
        assert spans.meeting(low, high) == [n for n, ends in enumerate(ranges) if meets(ends, low, high)]
        having = [n for n, ends in enumerate(ranges) if any(meets(ends, text, text) for text in texts)]
        assert spans.having(np.array(texts, np.bytes_)) == having
