"""Handlers without a node: `worker.test`, as users call it in tests of their own. And what the package says of itself."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import ostler
from ostler import AsyncContext, Context, Permanent, TaskInfo, Transient, Worker

SDK = Path(__file__).resolve().parent.parent


class Alone(unittest.TestCase):
    def setUp(self) -> None:
        self.worker = Worker()
        self.fetched = 0

        @self.worker.task("convert")
        def convert(payload: dict[str, Any], ctx: Context) -> tuple[int, str]:
            if not payload.get("url"):
                raise Permanent("there is no url")
            pages = ctx.step("fetched", self.fetch)
            ctx.progress(1, 2, "half")
            ctx.log("info", f"attempt {ctx.attempt}")
            if ctx.attempt == 1:
                raise Transient("the disk is full")
            ctx.step_or_warn("announced", lambda: [][0])
            ctx.file("out.pdf")
            return pages, str(ctx.folder)

    def fetch(self) -> int:
        self.fetched += 1
        return 7

    def test_a_gateway_gives_the_answers_of_the_test_and_an_error_of_its_class_is_raised(self) -> None:
        @self.worker.task("run")
        def run(payload: dict[str, Any], ctx: Context) -> list[Any]:
            session = ctx.gateway().create_session()
            plan = session.run_query(f"Plan {payload['prompt']}", max_iterations=3, model=None)
            report = session.run_query("Report.")
            own = ctx.task()
            assert own is not None
            return [plan.text, report.text, session.id, own.payload["prompt"], ctx.run("later", pool="runs", id="job_1")]

        @self.worker.task("async run")
        async def later(payload: Any, ctx: AsyncContext) -> str:
            session = await ctx.gateway().resume_session("s-1")
            return session.id + (await session.run_query("Go")).text

        tested = self.worker.test("run", {"prompt": "it"}, answers=["a plan", {"n": 1}])
        self.assertEqual(tested.output, ["a plan", '{"n":1}', "test-session-1", "it", "test-1"])
        self.assertEqual(tested.queries[0], {"session": 1, "input": "Plan it", "options": {"max_iterations": 3}})
        self.assertEqual(tested.submitted, [{"kind": "run", "payload": {"prompt": "later"}, "queue": "runs", "key": "job_1"}])
        self.assertEqual(self.worker.test("async run", answers=["!"]).output, "s-1!")
        with self.assertRaises(Transient):
            self.worker.test("run", {"prompt": "it"}, answers=[Transient("away")])
        with self.assertRaisesRegex(Permanent, "the pool has no gateway"):
            self.worker.test("run", {"prompt": "it"})

    def test_a_stream_has_the_events_of_the_test_and_then_its_answer(self) -> None:
        events = [{"type": "message", "text": "Hm.", "later": 1}, {"type": "usage", "input_tokens": 3, "model": None}]

        @self.worker.task("run")
        def run(payload: Any, ctx: Context) -> list[Any]:
            session = ctx.gateway().create_session()
            seen: list[Any] = []
            for event in session.stream("Plan", max_iterations=2):
                seen.append([event.type, event.text, None if event.type == "result" else event.usage])
            for event in session.stream("Report"):
                seen.append(event.text)
                break
            return seen

        @self.worker.task("async run")
        async def later(payload: Any, ctx: AsyncContext) -> list[Any]:
            session = await ctx.gateway().create_session()
            return [(event.type, event.text) async for event in session.stream("Go")]

        tested = self.worker.test("run", answers=["a plan", "a report"], events=[events, events])
        usage = ["usage", "", {"input_tokens": 3}]
        self.assertEqual(tested.output, [["message", "Hm.", None], usage, ["result", "a plan", None], "Hm."])
        self.assertEqual(tested.queries[0], {"session": 1, "input": "Plan", "options": {"max_iterations": 2}})
        self.assertEqual(tested.dropped, [2], "the stream that was left early")
        tested = self.worker.test("async run", answers=["!"], events=[events[:1]])
        self.assertEqual(tested.output, [["message", "Hm."], ["result", "!"]])
        with self.assertRaises(Transient):
            self.worker.test("run", answers=[Transient("away")], events=[events])

    def test_a_handler_can_be_tried_attempt_by_attempt(self) -> None:
        steps: dict[str, Any] = {}
        with self.assertRaises(Transient):
            self.worker.test("convert", {"url": "x"}, steps=steps)
        self.assertEqual(steps, {"fetched": 7})
        tested = self.worker.test("convert", {"url": "x"}, steps=steps, attempt=2, folder="/tasks/t1", timeout=60)
        self.assertEqual(tested.output, [7, "/tasks/t1"])
        self.assertEqual(self.fetched, 1, "a step that was kept is not done again")
        self.assertEqual(tested.steps, {"fetched": 7, "announced": None})
        self.assertEqual(tested.progress, [(1, 2, "half")])
        self.assertEqual(tested.logs, [("info", "attempt 2")])
        self.assertEqual(tested.files, ["out.pdf"])
        self.assertEqual(tested.warnings, [("announced", "IndexError: list index out of range")])

    def test_what_a_handler_raises_comes_out(self) -> None:
        with self.assertRaisesRegex(Permanent, "no url"):
            self.worker.test("convert", {})
        with self.assertRaisesRegex(Permanent, 'no handler for the kind "paint"; it has: convert'):
            self.worker.test("paint")

    def test_an_async_handler_can_be_tried_too(self) -> None:
        @self.worker.task("wait")
        async def wait(payload: float, ctx: AsyncContext) -> float:
            await asyncio.sleep(0)
            return await ctx.step("waited", lambda: payload)

        tested = self.worker.test("wait", 1.5)
        self.assertEqual((tested.output, tested.steps), (1.5, {"waited": 1.5}))

    def test_conversations_and_other_tasks_are_recorded(self) -> None:
        @self.worker.task("ask", attempts=5, timeout=30)
        def ask(payload: str, ctx: Context) -> list[Any]:
            ctx.session("s-1")
            ctx.prompt("Review it.")
            ctx.message("Done.")
            ctx.tool_result("c1", error=True)
            ctx.usage(model="m", input_tokens=3)
            child = ctx.submit("mail", {"to": payload}, key="one", delay=0.005)
            known = ctx.task("known")
            return [child, known and known.output, ctx.task("unknown")]

        tested = self.worker.test("ask", "ada", tasks=[TaskInfo("known", "completed", 7, None)])
        self.assertEqual(tested.output, ["test-1", 7, None])
        self.assertEqual(
            tested.conversation,
            [
                {"type": "session", "session": "s-1"},
                {"type": "prompt", "text": "Review it."},
                {"type": "message", "text": "Done.", "role": "assistant"},
                {"type": "tool_result", "call": "c1", "error": True},
                {"type": "usage", "model": "m", "input_tokens": 3},
            ],
        )
        self.assertEqual(tested.submitted, [{"kind": "mail", "payload": {"to": "ada"}, "key": "one", "delay_ms": 5}])

    def test_a_wrong_option_or_a_wrong_call_says_what_would_be_right(self) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"attempts": 0}, "attempts of a task must be a whole number from 1, and is 0"),
            ({"timeout": 0}, "timeout of a task is a number of seconds above 0, or a timedelta, and not 0"),
            ({"backoff": "wild"}, '"fixed", "linear" or "exponential", and not \'wild\''),
        ]
        for options, says in wrong:
            with self.assertRaisesRegex(ValueError, says):
                self.worker.task("x", **options)
        with self.assertRaisesRegex(TypeError, "options belong to a kind"):
            self.worker.task(attempts=5)

        @self.worker.task("calls")
        def calls(payload: dict[str, Any], ctx: Context) -> None:
            getattr(ctx, payload["call"])(**payload["with"])

        for call, given, says in [
            ("message", {"text": "x", "role": "robot"}, "\"system\", and not 'robot'"),
            ("usage", {"input_tokens": -1}, "input_tokens of ctx.usage must be a whole number, not below 0, and is -1"),
            ("usage", {"cost_usd": -1}, "cost_usd of ctx.usage"),
        ]:
            with self.assertRaisesRegex(ValueError, says):
                self.worker.test("calls", {"call": call, "with": given})

    def test_an_object_can_be_a_handler(self) -> None:
        class Doubler:
            async def __call__(self, payload: int, ctx: AsyncContext) -> int:
                return 2 * payload

        self.worker.task("double")(Doubler())
        self.assertEqual(self.worker.test("double", 4).output, 8)

    def test_the_payload_of_the_test_is_not_the_handler_s_to_change(self) -> None:
        @self.worker.task("change")
        def change(payload: list[int], ctx: Context) -> None:
            payload.append(1)

        payload: list[int] = []
        self.worker.test("change", payload)
        self.assertEqual(payload, [])


class Package(unittest.TestCase):
    def test_every_public_name_is_there_and_documented(self) -> None:
        for name in ostler.__all__:
            self.assertTrue(getattr(ostler, name).__doc__, name)
        for of in (Context, AsyncContext, Worker):
            for name in dir(of):
                if not name.startswith("_"):
                    self.assertTrue(getattr(of, name).__doc__, f"{of.__name__}.{name}")

    def test_the_examples_of_the_page_run(self) -> None:
        page = (SDK / "README.md").read_text()
        # Blocks that name a file need a node: tests/client/test_readme.py runs them.
        blocks = re.findall(r"```python\n(?!# )(.*?)```", page, re.DOTALL)
        self.assertGreater(len(blocks), 2)
        with mock.patch.object(Worker, "run"):
            for block in blocks:
                exec(compile(block, "README.md", "exec"), {})
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(ostler.worker.test("count", {"text": "to be"}).output, {"words": 2})
            self.assertEqual(ostler.worker.test("render", {"pages": 2}).progress, [(1, 2, None), (2, 2, None)])
            self.assertEqual(ostler.worker.test("poll", {"seconds": 0}).steps, {"asked": "yes"})
            said = ostler.worker.test("review", {"file": "a.py"}).conversation
            kinds = ["session", "prompt", "message", "message", "tool_call", "tool_result", "thinking", "usage"]
            self.assertEqual([frame["type"] for frame in said], kinds)
        self.assertEqual(printed.getvalue(), "counted 2\nalso when it is cancelled\n")


if __name__ == "__main__":
    unittest.main()
