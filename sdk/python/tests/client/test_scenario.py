"""The scenario of all clients (sdk/scenario.json, which describes itself), by both clients of Python, each against a node of its own."""

from __future__ import annotations

import asyncio
import inspect
import unittest
from collections.abc import AsyncIterator, Iterator
from typing import Any, Callable, Optional

from served import SCENARIO, Served

from ostler import AsyncClient, Client, OstlerError

Json = Any
WRONG_TOKEN = "a-token-that-no-node-has"
ERROR_FIELDS = ("code", "status", "message", "details", "task_class", "task")


def field(value: Any, name: str) -> Any:
    """A field of an object, or an element of a list; ``None`` if it is not there."""
    if isinstance(value, dict):
        return value.get(name)
    if name.isdigit():
        return value[int(name)]
    return getattr(value, name, None)


def resolved(value: Json, saved: dict[str, Any]) -> Json:
    """The value with what was saved in place of its references."""
    if isinstance(value, str) and value[:1] == "$" and value[1:2].isalpha():
        name, *path = value[1:].split(".")
        found = saved[name]
        for part in path:
            found = field(found, part)
        return found
    if isinstance(value, list):
        return [resolved(one, saved) for one in value]
    if isinstance(value, dict):
        return {name: resolved(one, saved) for name, one in value.items()}
    return value


def mismatch(pattern: Json, value: Any, at: str = "it") -> Optional[str]:
    """Where and why a value does not match; ``None``: it does."""
    if isinstance(pattern, dict) and len(pattern) == 1:
        ((name, wanted),) = pattern.items()
        if name in OPERATORS:
            return None if OPERATORS[name](wanted, value) else f"{at} is {value!r}, expected {pattern}"
    if isinstance(pattern, dict):
        if value is None or isinstance(value, (str, int, float, list)):
            return f"{at} is {value!r}, expected {pattern}"
        found = (mismatch(one, field(value, name), f"{at}.{name}") for name, one in pattern.items())
        return next((wrong for wrong in found if wrong), None)
    if isinstance(pattern, list):
        if not isinstance(value, list) or len(value) != len(pattern):
            return f"{at} is {value!r}, expected {len(pattern)} elements"
        found = (mismatch(one, value[place], f"{at}[{place}]") for place, one in enumerate(pattern))
        return next((wrong for wrong in found if wrong), None)
    return None if pattern == value else f"{at} is {value!r}, expected {pattern!r}"


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$any": lambda _, value: value is not None,
    "$length": lambda wanted, value: len(value) == wanted,
    "$contains": lambda wanted, value: any(mismatch(wanted, one) is None for one in value),
    "$first": lambda wanted, value: bool(value) and mismatch(wanted, value[0]) is None,
    "$text": lambda wanted, value: wanted in value,
    "$one_of": lambda wanted, value: value in wanted,
}


def check(step: dict[str, Any], saved: dict[str, Any], value: Any, error: Optional[Exception]) -> Optional[str]:
    """What is wrong with the outcome of a step."""
    if "raises" not in step:
        if error is not None:
            return f"it raised {type(error).__name__}: {error}"
        return mismatch(resolved(step.get("expect", {"$any": True}), saved), value) if "expect" in step else None
    if error is None:
        return f"it did not raise, and returned {value!r}"
    wanted = resolved(step["raises"], saved)
    names = [one.__name__ for one in type(error).__mro__]
    if wanted.pop("error") not in names:
        return f"it raised {names[0]}: {error}"
    return mismatch(wanted, {name: getattr(error, name, None) for name in ERROR_FIELDS}, "the error")


def method(client: Any, call: str) -> Callable[..., Any]:
    for name in call.split("."):
        client = getattr(client, name)
    return client


class Scenario(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Served()
        self.addCleanup(self.node.close)

    def clients(self, kind: Any) -> dict[str, Any]:
        url, nowhere = self.node.url, f"unix:{self.node.folder / 'nothing.sock'}"
        return {
            "owner": kind(url, token_file=self.node.token_file),
            "viewer": kind(url, self.node.token("viewer")),
            "wrong": kind(url, WRONG_TOKEN),
            "anonymous": kind(url),
            "unreachable": kind(nowhere, WRONG_TOKEN),
        }

    def walk(self, kind: Any, call: Callable[[Any], Any]) -> None:
        """Does all steps; `call` makes a value of what a method returned."""
        clients, saved = self.clients(kind), {}
        for number, step in enumerate(SCENARIO["steps"], 1):
            value, error = None, None
            arguments = resolved(step.get("args", []), saved)
            options = resolved(step.get("options", {}), saved)
            try:
                value = call(lambda: method(clients[step.get("client", "owner")], step["call"])(*arguments, **options))
            except (OstlerError, TypeError) as raised:
                error = raised
            wrong = check(step, saved, value, error)
            self.assertIsNone(wrong, f"step {number}, {step['about']}: {step['call']}: {wrong}")
            if "save" in step:
                saved[step["save"]] = value
        for client in clients.values():
            call(client.close)

    def test_the_client_does_the_scenario(self) -> None:
        def call(do: Callable[[], Any]) -> Any:
            value = do()
            return list(value) if isinstance(value, Iterator) else value

        self.walk(Client, call)

    def test_the_client_for_asyncio_does_the_scenario(self) -> None:
        async def call(do: Callable[[], Any]) -> Any:
            value = do()
            return [one async for one in value] if isinstance(value, AsyncIterator) else await value

        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        self.walk(AsyncClient, lambda do: loop.run_until_complete(call(do)))


class BothClients(unittest.TestCase):
    def test_they_have_the_same_methods_with_the_same_arguments(self) -> None:
        from ostler import AsyncJobs, Jobs

        for plain, awaited in ((Client, AsyncClient), (Jobs, AsyncJobs)):
            for name, function in inspect.getmembers(plain, inspect.isfunction):
                if not name.startswith("_"):
                    other = getattr(awaited, name)
                    self.assertEqual(inspect.signature(function).parameters, inspect.signature(other).parameters, name)


if __name__ == "__main__":
    unittest.main()
