"""A real worker process, driven over a real socket pair, frame by frame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from node import HERE, MAX_WAIT_S, SDK, Node

MAX_FRAME_BYTES = 16 * 1024 * 1024


class OneWorker(unittest.TestCase):
    """Tests that a worker survives share one: so each of them is also the next task of a used worker."""

    node: Node

    @classmethod
    def setUpClass(cls) -> None:
        cls.node = Node()
        cls.node.greet()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.node.close()

    def result(self, kind: str, payload: Any = None, **more: Any) -> dict[str, Any]:
        *_, last = self.node.do(kind, payload, **more)
        return last

    def error(self, kind: str, payload: Any = None, **more: Any) -> dict[str, Any]:
        result = self.result(kind, payload, **more)
        self.assertEqual((result["type"], result["ok"]), ("result", False))
        self.assertNotIn("output", result)
        error: dict[str, Any] = result["error"]
        return error


class Tasks(OneWorker):
    def test_a_handler_sees_its_task_and_what_it_returns_is_the_output(self) -> None:
        about = self.node.give("echo", {"ä": [1, None, "\u2028"]}, attempt=3, folder="/tmp", timeout_ms=1500, traceparent="00-ab-cd-01")
        seen = [about["id"], "echo", 3, "/tmp", 1.5, False, "00-ab-cd-01"]
        output = {"payload": {"ä": [1, None, "\u2028"]}, "seen": seen, "in time": True}
        self.assertEqual(self.node.hear(), {"type": "result", **about, "ok": True, "output": output})

    def test_what_a_node_leaves_out_is_none(self) -> None:
        self.node.say(type="task", id="bare", token=1, kind="echo")
        output = self.node.hear()["output"]
        self.assertEqual(output, {"payload": None, "seen": ["bare", "echo", 1, "None", None, False, None], "in time": False})

    def test_an_async_handler_runs_too(self) -> None:
        self.assertEqual(self.result("echo-async", 7)["output"], [7, "AsyncContext"])
        self.assertEqual(self.result("echo-async", 8)["output"], [8, "AsyncContext"])

    def test_plain_handlers_run_on_the_main_thread(self) -> None:
        self.assertIs(self.result("the-ends")["output"], True)

    def test_progress_logs_and_files_are_said_in_order(self) -> None:
        self.assertEqual(
            self.node.do("notes", folder="/tasks/t1")[:-1],
            [
                {"type": "progress", "done": 1},
                {"type": "progress", "done": 40, "total": 100, "note": "pages"},
                {"type": "log", "level": "warn", "message": "half ? a name"},
                {"type": "file", "path": "report.pdf"},
                {"type": "file", "path": "sub/b.txt"},
            ],
        )

    def test_misuse_is_an_error_that_says_what_would_be_right(self) -> None:
        said = self.result("misuse")["output"]
        self.assertEqual(len(said), 9, said)
        for words, sentence in zip(
            ["done of ctx.progress", "is -1", '"warn"', "no folder", "name the step", "after=", "nan", "name the kind", "'echo'"],
            said,
        ):
            self.assertIn(words, sentence)

    def test_a_file_outside_of_the_folder_is_refused(self) -> None:
        said = self.result("outside", folder="/tasks/t1")["output"]
        self.assertEqual([sentence.count("inside of the task's folder, /tasks/t1") for sentence in said], [1, 1, 1])

    def test_a_kind_without_a_handler_is_a_permanent_error_with_the_kinds_there_are(self) -> None:
        error = self.error("paint")
        self.assertEqual(error["class"], "permanent")
        self.assertIn('no handler for the kind "paint"; it has: cancels-itself, children, echo', error["message"])

    def test_unknown_types_and_fields_are_ignored(self) -> None:
        self.node.say(type="weather", sunny=True)
        self.node.say(nothing="at all")
        self.assertEqual(self.result("echo", 1, colour="red")["output"]["payload"], 1)

    def test_frames_may_come_in_any_pieces(self) -> None:
        about = {"id": "pieces", "token": 9}
        frames = json.dumps({"type": "task", **about, "kind": "echo-async", "payload": "ß"}, ensure_ascii=False).encode() + b"\n"
        for at in range(len(frames)):
            self.node.socket.sendall(frames[at : at + 1])
        self.assertEqual(self.node.hear()["output"][0], "ß")

    def test_a_large_payload_comes_whole(self) -> None:
        payload = "x" * (MAX_FRAME_BYTES - 1000)
        self.assertEqual(self.result("echo-async", payload)["output"][0], payload)

    def test_children_inherit_neither_the_socket_nor_its_number(self) -> None:
        said = self.node.do("children")
        self.assertEqual([frame["type"] for frame in said], ["result"], "a fork spoke for the worker")
        output = said[0]["output"]
        self.assertEqual((output["variable"], output["own"]), (None, None))
        # Its three streams, and the folder that it lists.
        self.assertEqual(len(output["descriptors"]), 4, output)

    def test_what_is_said_after_the_result_is_not_sent(self) -> None:
        self.result("speaks-later")
        self.assertEqual(self.node.do("lets-it-speak"), [{"type": "result", "ok": True, "output": "it spoke"}])


class Steps(OneWorker):
    def test_a_step_is_sent_and_comes_back_as_json_has_it(self) -> None:
        said = self.node.do("steps", {"by": 1})
        fetched = {"pages": [1, 2], "3": "x"}
        self.assertEqual(
            said,
            [
                {"type": "step", "name": "fetched", "value": fetched},
                {"type": "step", "name": "extra", "value": 1},
                # A step that came to nothing is done all the same.
                {"type": "step", "name": "nothing", "value": None},
                {"type": "result", "ok": True, "output": [fetched, 1, None]},
            ],
        )

    def test_a_step_of_an_earlier_attempt_is_not_done_again(self) -> None:
        said = self.node.do("steps", {"by": 0}, attempt=2, steps={"fetched": "kept", "extra": None})
        self.assertEqual(said[0], {"type": "step", "name": "nothing", "value": None})
        self.assertEqual(said[1]["output"], ["kept", None, None])

    def test_a_step_that_the_task_can_do_without_is_a_warning_and_is_not_tried_again(self) -> None:
        said = self.node.do("steps", {"by": 0})
        message = "ZeroDivisionError: integer division or modulo by zero"
        self.assertEqual(said[1], {"type": "step", "name": "extra", "value": None})
        self.assertEqual(said[2], {"type": "step_failed", "name": "extra", "message": message})
        self.assertEqual(said[-1]["output"][1], None)

    def test_async_steps_can_be_done_at_once(self) -> None:
        said = self.node.do("steps-async")
        self.assertEqual({frame["name"] for frame in said[:2]}, {"slow", "plain"})
        self.assertEqual(said[3], {"type": "step_failed", "name": "bad", "message": "ValueError: not today"})
        self.assertEqual(said[-1]["output"], ["slow", "plain", None])

    def test_steps_can_be_done_by_threads_of_the_handler(self) -> None:
        self.assertEqual(self.result("steps-in-threads")["output"], list(range(12)))

    def test_an_error_names_the_innermost_step_it_came_out_of(self) -> None:
        error = self.error("step-fails")
        self.assertEqual((error["step"], error["message"]), ("move", "KeyError: 'gone'"))

    def test_the_same_name_twice_is_a_permanent_error(self) -> None:
        error = self.error("step-twice")
        self.assertEqual((error["class"], error["step"]), ("permanent", "one"))
        self.assertIn("twice in one attempt", error["message"])
        # Also when an earlier attempt has done it.
        self.assertIn("twice", self.error("step-twice", steps={"one": 1})["message"])

    def test_a_step_that_cannot_be_sent_is_a_permanent_error(self) -> None:
        error = self.error("step-wrong", "set")
        self.assertEqual((error["class"], error["step"]), ("permanent", "wrong"))
        self.assertIn("cannot be written as JSON: Object of type set", error["message"])
        error = self.error("step-wrong", "large")
        self.assertEqual((error["class"], error["step"]), ("permanent", "wrong"))
        self.assertIn('the step "wrong" has 16777', error["message"])

    def test_a_step_returns_only_when_it_is_saved(self) -> None:
        for kind in ("waits-for-saved", "waits-for-saved-async"):
            with self.subTest(kind):
                about = self.node.give(kind)
                self.assertEqual(self.node.hear()["type"], "step")
                # Answers that are not its own.
                self.node.say(type="saved", step="two", **about)
                self.node.say(type="saved", step="one", id=about["id"], token=1)
                # If it went on by itself, its result would be a success.
                self.node.say(type="cancel", reason="the test", **about)
                said = self.node.hear()
                said = self.node.hear() if said["type"] == "log" else said
                self.assertEqual(said["error"], {"message": "cancelled: the test"})

    def test_a_lost_lease_raises_what_except_exception_does_not_catch(self) -> None:
        for kind, word in (("waits-for-saved", "lost"), ("waits-for-saved-async", "cleaned up")):
            with self.subTest(kind):
                about = self.node.give(kind)
                self.node.hear()
                self.node.say(type="lost", **about)
                self.assertEqual(self.node.hear()["message"], word)
                error = self.node.hear()["error"]
                self.assertIn("the lease is lost", error["message"])
                self.assertNotIn("class", error)


class Cancel(OneWorker):
    def cancelled(self, kind: str, payload: Any = None) -> list[dict[str, Any]]:
        about = self.node.give(kind, payload)
        self.assertEqual(self.node.hear()["message"], "begun")
        # Of other tasks.
        self.node.say(type="cancel", id="another", token=about["token"])
        self.node.say(type="cancel", id=about["id"], token=about["token"] - 1)
        self.node.say(type="cancel", reason="by hand", **about)
        said = [self.node.hear()]
        while said[-1]["type"] != "result":
            said.append(self.node.hear())
        return said

    def test_a_plain_handler_that_sleeps_is_woken(self) -> None:
        said = self.cancelled("sleeps")
        self.assertEqual(said[0]["message"], "cleaned up")
        self.assertEqual((said[1]["ok"], said[1]["error"]), (False, {"message": "cancelled: by hand"}))

    def test_a_plain_handler_that_computes_sees_the_flag(self) -> None:
        self.assertEqual(self.cancelled("looks")[0]["error"], {"message": "cancelled: by hand"})

    def test_a_handler_that_is_done_all_the_same_has_its_result(self) -> None:
        self.assertEqual(self.cancelled("looks", "goes on")[0]["output"], "it was done already")

    def test_an_async_handler_is_cancelled_as_asyncio_does_it(self) -> None:
        said = self.cancelled("waits-async")
        self.assertEqual(said[0]["message"], "cleaned up")
        self.assertEqual(said[1]["error"], {"message": "cancelled: by hand"})

    def test_a_cancel_that_comes_with_the_task_is_heard(self) -> None:
        for kind in ("sleeps", "waits-async", "echo"):
            with self.subTest(kind):
                task = {"type": "task", "id": "soon", "token": 1, "kind": kind}
                cancel = {"type": "cancel", "id": "soon", "token": 1}
                self.node.socket.sendall(f"{json.dumps(task)}\n{json.dumps(cancel)}\n".encode())
                self.assertEqual(self.node.hear()["error"], {"message": "cancelled: no reason was given"})

    def test_a_cancellation_of_its_own_is_an_error_like_any_other(self) -> None:
        self.assertTrue(self.error("cancels-itself")["message"].startswith("CancelledError"))


class Errors(OneWorker):
    def test_every_class_has_its_word(self) -> None:
        for which, expected in {
            "transient": {"class": "transient", "retry_after_ms": 2000, "hint": "wait", "details": "more", "step": "move"},
            "delta": {"class": "transient", "retry_after_ms": 1500},
            "partial": {"class": "partial", "step": "second"},
            "permanent": {"class": "permanent"},
            "after": {"class": "rate_limited", "retry_after_ms": 250},
            "until": {"class": "rate_limited", "retry_after_ms": 0},
            "usage_limit": {"class": "usage_limit", "retry_after_ms": 60000},
            "queue_stop": {"class": "queue_stop"},
            "timeout": {"class": "transient", "message": "TimeoutError: too slow"},
            "socket": {"class": "transient"},
            "futures": {"class": "transient"},
            "connection": {"class": "transient", "message": "ConnectionResetError: gone"},
            "value": {"class": None, "message": "ValueError: bad", "hint": None, "step": None, "retry_after_ms": None},
            "silent": {"class": None, "message": "KeyboardError"},
            "odd": {"class": None, "message": "Odd: (its message cannot be read)"},
            "bare": {"class": "permanent"},
            "exit": {"class": None, "message": "the handler called sys.exit(3)"},
        }.items():
            for kind in ("fails",) if which == "exit" else ("fails", "fails-async"):
                with self.subTest(which, kind=kind):
                    error = self.error(kind, which)
                    self.assertEqual({name: error.get(name) for name in expected}, expected)

    def test_the_traceback_is_in_the_details(self) -> None:
        for kind in ("fails", "fails-async"):
            first, second, *_, last, end = self.error(kind, "value")["details"].split("\n")
            # It begins with the handler, and not with how it was called.
            self.assertIn("handlers.py", second)
            self.assertEqual((first, last, end), ("Traceback (most recent call last):", "ValueError: bad", ""))

    def test_what_a_long_error_says_is_cut(self) -> None:
        error = self.error("fails", "long")
        self.assertLess(len(json.dumps(error)), 200_000)
        self.assertTrue(error["message"].startswith("ValueError: xxx") and error["message"].endswith("…"))

    def test_a_result_that_cannot_be_sent_is_a_permanent_error(self) -> None:
        for which, words in {
            "set": "cannot be written as JSON: Object of type set",
            "nan": "cannot be written as JSON: Out of range float",
            "half": "cannot be written as JSON: 'utf-8' codec",
            "large": "the result has 16777",
            "coroutine": 'must be an "async def" itself',
        }.items():
            with self.subTest(which):
                error = self.error("returns", which)
                self.assertEqual(error["class"], "permanent")
                self.assertIn(words, error["message"])
        self.assertEqual(len(self.result("returns", "fits")["output"]), MAX_FRAME_BYTES - 200)


class Life(unittest.TestCase):
    def start(self, *command: str) -> Node:
        node = Node(*command)
        self.addCleanup(node.close)
        return node

    def test_it_says_who_it_is_and_what_it_can_and_ends_when_it_is_told(self) -> None:
        node = self.start()
        ready = node.greet()
        kinds = ready.pop("kinds")
        self.assertEqual(ready, {"type": "ready", "protocol": 1, "sdk": "python/0.1.0"})
        self.assertEqual(kinds, sorted(kinds))
        self.assertIn("echo-async", kinds)
        node.say(type="stop")
        self.assertEqual(node.hear(), {})
        code, out, err = node.end()
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.endswith("half a lineafter the run\n"), out)

    def test_with_a_handler_for_the_rest_it_names_no_kinds(self) -> None:
        node = self.start(sys.executable, str(HERE / "handlers.py"), "any")
        self.assertNotIn("kinds", node.greet())
        self.assertEqual(node.do("paint")[0]["output"], "paint")
        self.assertEqual(node.do("the-ends")[0]["output"], True)

    def test_a_task_that_runs_is_ended_before_a_stop_is_obeyed(self) -> None:
        for kind in ("waits-for-saved", "waits-for-saved-async"):
            with self.subTest(kind):
                node = self.start()
                node.greet()
                about = node.give(kind)
                node.hear()
                node.say(type="stop")
                node.say(type="saved", step="one", **about)
                said = node.hear()
                said = node.hear() if said["type"] == "log" else said
                self.assertEqual(said["output"], "went on")
                self.assertEqual(node.hear(), {})
                self.assertEqual(node.end()[0], 0)

    def test_a_cancel_is_heard_after_a_stop(self) -> None:
        node = self.start()
        node.greet()
        about = node.give("sleeps")
        node.hear()
        node.say(type="stop")
        node.say(type="cancel", **about)
        self.assertEqual([node.hear()["type"], node.hear()["type"], node.hear()], ["log", "result", {}])
        self.assertEqual(node.end()[0], 0)

    def test_an_idle_worker_ends_when_the_node_is_gone(self) -> None:
        for done in (0, 1):
            with self.subTest(done):
                node = self.start()
                node.greet()
                for _ in range(done):
                    node.do("echo")
                node.socket.shutdown(2)
                self.assertEqual(node.end()[0], 0)

    def test_a_busy_worker_ends_at_once_when_the_node_is_gone(self) -> None:
        for kind in ("sleeps", "looks", "waits-async", "waits-for-saved"):
            with self.subTest(kind):
                node = self.start()
                node.greet()
                node.give(kind)
                node.hear()
                node.socket.shutdown(2)
                code, _, err = node.end()
                self.assertEqual((code, err), (1, "ostler: the node is gone; this worker exits, and another node will run its task\n"))

    def test_what_is_printed_stays_apart_from_frames(self) -> None:
        node = self.start()
        node.greet()
        self.assertEqual(node.do("prints"), [{"type": "result", "ok": True, "output": "printed"}])
        assert node.process.stdout is not None
        # It is there with the result, also where a line has no end.
        noise = b'{"type":"result","id":"noise"}\nhalf a line{"type":"result","ok":true}\nnot JSON\nno end of line'
        self.assertEqual(os.read(node.process.stdout.fileno(), 1000), noise)
        node.say(type="stop")
        self.assertEqual(node.end()[2], "on stderr\n")

    def test_what_is_no_frame_ends_it_with_a_sentence(self) -> None:
        for line, words in {
            b"pardon?\n": "JSONDecodeError",
            b"\xff\n": "UnicodeDecodeError",
            b"[1]\n": "AttributeError",
            b'{"type":"task","id":"1"}\n': "KeyError",
            b"[" * 100_000 + b"\n": "RecursionError",
            b"x" * (MAX_FRAME_BYTES + 1): "a line of more than 16777216 bytes",
        }.items():
            with self.subTest(words):
                node = self.start()
                node.greet()
                node.socket.sendall(line)
                code, _, err = node.end()
                self.assertEqual(code, 1)
                self.assertIn("the node sent what is no frame of protocol 1: ", err)
                self.assertIn(words, err)

    def test_another_protocol_is_refused(self) -> None:
        node = self.start()
        node.say(type="hello", protocol=2)
        code, _, err = node.end()
        self.assertEqual(code, 1)
        self.assertIn("the node speaks protocol 2, and this worker 1", err)

    def test_without_a_node_it_says_how_it_is_used(self) -> None:
        for variable, words in {
            None: 'OSTLER_FD is not set. Say in ostler.toml',
            "three": "OSTLER_FD should be the number of a socket that a node left open, and is 'three'",
            "1": "OSTLER_FD should be the number of a socket",
            "777": "OSTLER_FD should be the number of a socket",
        }.items():
            with self.subTest(variable):
                environment = {**os.environ, "PYTHONPATH": str(SDK)}
                environment.pop("OSTLER_FD", None)
                if variable is not None:
                    environment["OSTLER_FD"] = variable
                done = subprocess.run(
                    [sys.executable, str(HERE / "handlers.py")], env=environment, capture_output=True, timeout=MAX_WAIT_S
                )
                self.assertEqual(done.returncode, 2)
                self.assertTrue(done.stderr.decode().startswith("ostler: "), done.stderr)
                self.assertIn(words, done.stderr.decode())
                self.assertNotIn("Traceback", done.stderr.decode())

    def test_a_worker_without_handlers_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "empty.py")
            program.write_text("from ostler import worker\nworker.run()\n")
            node = self.start(sys.executable, str(program))
            code, _, err = node.end()
            self.assertEqual(code, 2)
            self.assertIn("this worker has no handler", err)


if __name__ == "__main__":
    unittest.main()
