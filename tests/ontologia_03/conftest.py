"""A small shop as 0.3 left it, in each of its five forms."""

import pytest

from support.shop_03 import shop
from support.writer_03 import FORMS, write


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def old(form, tmp_path):
    """The address of the shop."""
    return write(shop(), tmp_path, form)
