"""The pure half of the clients: bytes, pages, repeats and settings, without a node."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Optional
from unittest import mock

from node import SDK

from ostler import _flows as flows
from ostler import client as clients
from ostler._http import Answer, AnswerReader, EventReader, Lost, Request, address, json_body, path_of, request_bytes
from ostler._settings import settings

HERE = address("http://127.0.0.1:7700")
NO_CONTENT = Answer(204, {}, b"")


def answer(status: int, value: Any = None, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): text for name, text in headers.items()}, json.dumps(value).encode())


def told(code: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": "a sentence", "details": None}}


def play(flow: Any, *answers: Any) -> tuple[Any, list[Any], list[Any]]:
    """Does a flow with these answers, errors among them. Its value, what it asked for, and what it emitted."""
    left, asked, emitted = list(answers), [], []
    value: Any = None
    lost: Optional[Lost] = None
    try:
        while True:
            step = flow.throw(lost) if lost else flow.send(value)
            value, lost = None, None
            if isinstance(step, flows.Emit):
                emitted.append(step.value)
            elif isinstance(step, flows.Sleep):
                asked.append(step)
            else:
                asked.append(step)
                value = left.pop(0)
                if isinstance(value, Lost):
                    lost, value = value, None
    except StopIteration as end:
        return end.value, asked, emitted


def requests(asked: list[Any]) -> list[Any]:
    return [step for step in asked if not isinstance(step, flows.Sleep)]


class Bytes(unittest.TestCase):
    def read(self, data: bytes, size: int) -> tuple[AnswerReader, bytes]:
        reader, body = AnswerReader(), b""
        for at in range(0, len(data), size):
            body += reader.feed(data[at : at + size])
        return reader, body

    def test_answers_are_read_in_pieces_of_any_size(self) -> None:
        plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n"
        continued = b"HTTP/1.1 100 Continue\r\n\r\n" + plain
        for data in (plain, chunked, continued):
            for size in range(1, len(data) + 1):
                reader, body = self.read(data, size)
                self.assertEqual((reader.status, body, reader.done, reader.reusable), (200, b"hello", True, True), (data, size))

    def test_an_answer_up_to_the_end_of_the_connection_ends_with_it(self) -> None:
        reader, body = self.read(b"HTTP/1.0 200 OK\r\n\r\nhello", 7)
        self.assertEqual((body, reader.done), (b"hello", False))
        reader.feed(b"")
        self.assertEqual((reader.done, reader.reusable), (True, False))

    def test_a_cut_answer_is_not_taken_for_a_whole_one(self) -> None:
        for data in (b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n"):
            reader, _ = self.read(data, 9)
            with self.assertRaises(Lost):
                reader.feed(b"")

    def test_what_is_no_http_is_an_error_and_not_a_hang(self) -> None:
        for data in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"x" * 100_000):
            with self.assertRaises(Lost):
                self.read(data, 4096)

    def test_events_are_read_in_pieces_of_any_size(self) -> None:
        data = 'retry: 2000\n\n: ping\n\nid: 7\ndata: {"a":"ü"}\n\nid: 8\r\ndata: 1\r\ndata:2\r\n\r\nevent: end\ndata: {}\n\n'.encode()
        for size in range(1, len(data) + 1):
            reader, events = EventReader(), []
            for at in range(0, len(data), size):
                events += reader.feed(data[at : at + size])
            self.assertEqual(events, [("message", '{"a":"ü"}', "7"), ("message", "1\n2", "8"), ("end", "{}", None)], size)

    def test_a_header_cannot_bring_another_header(self) -> None:
        for request, token in ((Request("GET", "/"), "a\r\nX: y"), (Request("GET", "/", headers=(("Idempotency-Key", "ü"),)), "t")):
            with self.assertRaises(clients.Invalid):
                request_bytes(request, HERE, token, "close")
        with self.assertRaises(clients.Invalid):
            request_bytes(Request("GET", "/ HTTP/1.1\r\nX: y"), HERE, None, "close")

    def test_a_name_is_one_part_of_a_path(self) -> None:
        self.assertEqual(path_of("tasks", "key:a/b?c", query={"queue": "ä b", "after": None}), "/api/v1/tasks/key:a%2Fb%3Fc?queue=%C3%A4+b")
        with self.assertRaises(clients.Invalid):
            path_of("tasks", "..")

    def test_numbers_stay_as_they_are_and_what_json_has_not_is_refused(self) -> None:
        self.assertEqual(json_body({"n": 2**70, "x": 0.1}), b'{"n":1180591620717411303424,"x":0.1}')
        for value in (float("nan"), {1, 2}, "\ud800"):
            with self.assertRaises(clients.Invalid):
                json_body(value)


class Repeats(unittest.TestCase):
    def test_what_may_help_is_sent_again_with_growing_pauses(self) -> None:
        lost = [Lost("cut"), answer(503, told("busy")), answer(502), Lost("cut")]
        value, asked, _ = play(flows.get(HERE, "stats"), *lost, answer(200, {"a": 1}))
        self.assertEqual(value, {"a": 1})
        pauses = [step.seconds for step in asked if isinstance(step, flows.Sleep)]
        self.assertEqual(len(pauses), 4)
        self.assertGreater(pauses[3], pauses[0])

    def test_repeats_are_bounded(self) -> None:
        with self.assertRaises(clients.Unreachable):
            play(flows.get(HERE, "stats"), *[Lost("cut")] * flows.MAX_SENDS)
        with self.assertRaises(clients.Unavailable):
            play(flows.get(HERE, "stats"), *[answer(503, told("busy"))] * flows.MAX_SENDS)

    def test_a_submission_keeps_its_key_and_its_body(self) -> None:
        done, asked, _ = play(flows.submit(HERE, {"queue": "q", "kind": "k"}, None), Lost("cut"), answer(201, {"id": "1", "result": "created"}))
        first, second = requests(asked)
        self.assertEqual(first, second)
        self.assertEqual((done.id, first.headers[0][0]), ("1", "Idempotency-Key"))

    def test_the_node_says_how_long_to_wait(self) -> None:
        _, asked, _ = play(flows.get(HERE, "stats"), answer(429, told("busy"), retry_after="7"), answer(200, {}))
        self.assertEqual(asked[1].seconds, 7)
        with self.assertRaises(clients.OstlerError):
            play(flows.get(HERE, "stats"), answer(429, told("busy"), retry_after="3600"))

    def test_other_errors_and_changes_are_sent_once(self) -> None:
        with self.assertRaises(clients.QueueFull):
            play(flows.submit(HERE, {"queue": "q", "kind": "k"}, None), answer(429, told("queue_full"), retry_after="1"))
        with self.assertRaises(clients.Unavailable):
            play(flows.change(HERE, "tasks", "1", "cancel"), answer(503, told("busy")))
        with self.assertRaises(clients.Unreachable):
            play(flows.get(HERE, "stats"), Lost("refused", unknown=True))

    def test_an_answer_of_a_proxy_needs_no_json(self) -> None:
        with self.assertRaises(clients.OstlerError) as raised:
            play(flows.get(HERE, "stats"), Answer(418, {}, b"<html>"))
        self.assertEqual((raised.exception.status, raised.exception.code), (418, "http_error"))


class Flows(unittest.TestCase):
    def test_an_empty_page_with_a_cursor_is_not_the_end(self) -> None:
        pages = [{"tasks": [1], "cursor": "a"}, {"tasks": [], "cursor": "b"}, {"tasks": [2], "cursor": None}]
        _, asked, emitted = play(flows.pages(HERE, "tasks", "tasks", {"class_": "timeout"}), *(answer(200, page) for page in pages))
        self.assertEqual(emitted, [1, 2])
        self.assertEqual(asked[2].path, "/api/v1/tasks?class=timeout&cursor=b")

    def test_a_stream_goes_on_behind_its_last_event_and_drops_doubles(self) -> None:
        opened, end = Answer(200, {}, b""), b"event: end\ndata: {}\n\n"
        pieces = [opened, b"id: 1\ndata: 1\n\nid: 2\nda", Lost("cut"), opened, b"id: 1\ndata: 1\n\nid: 2\ndata: 2\n\n" + end]
        _, asked, emitted = play(flows.follow(HERE, "t", None, None, False), *pieces)
        self.assertEqual(emitted, [1, 2])
        self.assertEqual([step.request.headers for step in asked if isinstance(step, flows.Open)], [(), (("Last-Event-ID", "1"),)])

    def test_a_stream_that_had_everything_ends(self) -> None:
        _, _, emitted = play(flows.follow(HERE, "t", None, None, False), Answer(200, {}, b""), b"id: 1\ndata: 1\n\n", b"", NO_CONTENT)
        self.assertEqual(emitted, [1])

    def test_a_stream_that_is_always_cut_is_given_up(self) -> None:
        with self.assertRaises(clients.Unreachable):
            play(flows.follow(HERE, "t", None, None, False), *[Answer(200, {}, b""), b""] * flows.MAX_SENDS)

    def test_the_overview_is_whole_and_goes_on_after_a_cut_and_after_another_start(self) -> None:
        def sent(number: str, **sections: int) -> bytes:
            return "".join(f"id: {number}\nevent: {name}\ndata: {value}\n\n" for name, value in sections.items()).encode()

        opened, reset = Answer(200, {}, b""), b"event: reset\ndata: {}\n\n"
        all_four = {"stats": 1, "queues": 1, "nodes": 1, "workers": 1}
        first = [opened, sent("a-1", stats=1, queues=1), sent("a-1", nodes=1, workers=1), sent("a-2", more=1), Lost("cut")]
        second = [opened, sent("a-3", queues=2), b""]
        third = [opened, reset + sent("b-1", stats=5), sent("b-1", queues=5, nodes=5, workers=5), b""]
        steps, emitted, asked = iter([*first, *second, *third, answer(401, told("unauthorized"))]), [], []
        flow, value, lost = flows.live(HERE), None, None
        with self.assertRaises(clients.Unauthorized):
            while True:
                step = flow.throw(lost) if lost else flow.send(value)
                value, lost = None, None
                if isinstance(step, flows.Emit):
                    emitted.append(step.value)
                elif not isinstance(step, flows.Sleep):
                    asked.append(step)
                    value = next(steps)
                    value, lost = (None, value) if isinstance(value, Lost) else (value, None)
        self.assertEqual(emitted, [all_four, {**all_four, "queues": 2}, dict.fromkeys(all_four, 5)])
        opens = [step.request.headers for step in asked if isinstance(step, flows.Open)]
        self.assertEqual(opens, [(), (("Last-Event-ID", "a-2"),), (("Last-Event-ID", "a-3"),), (("Last-Event-ID", "b-1"),)])

    def test_chunks_are_within_bounds_and_tasks_with_ids_stand_alone(self) -> None:
        large = "x" * (flows.CHUNK_BYTES // 2)
        tasks = [{"payload": large}, {"payload": large}, *[{"id": str(n)} for n in range(flows.CHUNK_TASKS + 1)], {}]
        made = [(len(chunk), own) for chunk, own in flows.chunks(tasks)]
        self.assertEqual(made, [(1, False), (1, False), (flows.CHUNK_TASKS, True), (1, True), (1, False)])

    def test_options_are_those_of_the_api(self) -> None:
        from datetime import datetime, timedelta, timezone

        at = datetime(2030, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
        body = flows.task_body({"in_": 1.5, "timeout": timedelta(minutes=1), "key_for": "10m", "at": at, "priority": None})
        self.assertEqual(body, {"in": "1500ms", "timeout": "60000ms", "key_for": "10m", "at": "2030-01-01T00:00:00.000Z"})
        for wrong in ({"prority": 5}, {"in": -1}, {"at": datetime(2030, 1, 1)}):
            with self.assertRaises(clients.Invalid):
                flows.task_body(wrong)
        described = json.loads((SDK.parent.parent / "docs" / "openapi.json").read_text())
        self.assertEqual(flows.TASK_FIELDS, set(described["components"]["schemas"]["TaskInput"]["properties"]))

    def test_errors_survive_the_way_out_of_a_process(self) -> None:
        failed = clients.TaskFailed("task_failed", "no", {"id": "1", "error": {"class": "timeout"}})
        for error in (failed, clients.NotFound("not_found", "no", None, 404)):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), copy.code, copy.message, copy.status), (type(error), error.code, error.message, error.status))
        self.assertEqual(pickle.loads(pickle.dumps(failed)).task_class, "timeout")


class Settings(unittest.TestCase):
    def test_what_is_given_wins_over_the_environment(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, OSTLER_SERVER="http://a:1", OSTLER_TOKEN="env"):
            file = Path(folder, "token")
            file.write_text("# NAME read|full TOKEN\n\nviewer read v\nowner full o\n")
            self.assertEqual(settings(None, None, None, 1).token, "env")
            self.assertEqual(settings(None, None, file, 1).token, "o")
            self.assertEqual(settings(None, "t", file, 1).token, "t")
            self.assertEqual(settings(None, None, None, 1).to.host_header, "a:1")
            with self.assertRaises(clients.Unauthorized) as raised:
                settings(None, None, Path(folder, "none"), 1)
            self.assertIn("ostler up", raised.exception.message)

    def test_addresses(self) -> None:
        self.assertEqual(address("http://[::1]:7700/base/")[:4], ("http", "::1", 7700, "/base"))
        self.assertEqual(address("http://[::1]:7700").host_header, "[::1]:7700")
        self.assertEqual(address("https://example.org").host_header, "example.org")
        self.assertEqual(address("unix:api.sock")[:2], ("unix", "api.sock"))
        for wrong in ("127.0.0.1:7700", "ftp://a", "http://", "unix:", "http://a:x", "http://u:p@a"):
            with self.assertRaises(clients.Invalid):
                address(wrong)

    def test_a_worker_does_not_import_the_client(self) -> None:
        look = "import sys, ostler; print([name for name in sys.modules if name.startswith('ostler.') or name in ('asyncio', 'ssl')])"
        environment = {**os.environ, "PYTHONPATH": str(SDK)}
        printed = subprocess.run([sys.executable, "-c", look], env=environment, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(printed.decode().strip(), "[]")


if __name__ == "__main__":
    unittest.main()
