"""The fixture ``ostler_node`` for pytest, which finds it by the entry point of this package."""

from __future__ import annotations

import contextlib

import pytest

from .testing import running_node


@pytest.fixture
def ostler_node(tmp_path_factory):
    """Starts nodes: ``node = ostler_node(config)``, with the arguments of :func:`ostler.testing.running_node`. They end with the test."""
    with contextlib.ExitStack() as stack:

        def start(config, folder=None, **more):
            place = tmp_path_factory.mktemp("ostler") if folder is None else folder
            return stack.enter_context(running_node(config, place, **more))

        yield start
