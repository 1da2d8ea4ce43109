"""Places in an empty directory, and profiles that are written there."""

from __future__ import annotations

import os

import pytest

from pincer_trace.profile import Places


@pytest.fixture
def places(tmp_path):
    home = tmp_path / "home"
    (home / ".config/pincer-trace/profiles").mkdir(parents=True)
    work = home / "work"
    work.mkdir()
    return Places.of(str(work), {"HOME": str(home), "PATH": "/usr/bin"}, None)


@pytest.fixture
def write(places):
    def write(text, name="p.toml"):
        path = os.path.join(os.fsdecode(places.workspace), name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        return path

    return write
