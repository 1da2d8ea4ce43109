from __future__ import annotations

import pytest

from .records import Maker


@pytest.fixture
def make():
    return Maker()
