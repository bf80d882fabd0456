"""Lost answers, cut streams, killed nodes, cancelled calls: what the clients make of them, with a real node."""

from __future__ import annotations

import asyncio
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cutting import Cutting
from served import MAX_WAIT_S, Served

from ostler import AsyncClient, Client, NotFinished, OstlerError, Unreachable

TALK = "for i in 1 2 3 4 5 6 7 8; do echo line $i >&2; sleep 0.05; done; exit 1"
SLOW = {"script": "sleep 600"}


class WithNode(unittest.TestCase):
    node: Served

    @classmethod
    def setUpClass(cls) -> None:
        cls.node = Served()
        cls.addClassCleanup(cls.node.close)

    def setUp(self) -> None:
        self.client = Client(self.node.url, token_file=self.node.token_file)
        self.addCleanup(self.client.close)

    def cutting(self, answer_bytes: int, cuts: int) -> Cutting:
        proxy = Cutting(self.node.url[len("unix:") :], answer_bytes, cuts)
        self.addCleanup(proxy.close)
        return proxy

    def through(self, proxy: Cutting, kind: Any = Client, **more: Any) -> Any:
        return kind(proxy.url, token_file=self.node.token_file, **more)

    # -- lost answers --

    def test_a_submission_whose_answer_is_lost_is_sent_again_and_makes_one_task(self) -> None:
        proxy = self.cutting(0, 2)
        with self.through(proxy) as client:
            task = client.submit("lost", "run", {"n": 1})
            many = client.submit_many({"queue": "lost", "kind": "run", "payload": {"n": n}} for n in range(2, 5))
        self.assertGreaterEqual(proxy.connections, 3, "two answers were lost")
        ids = {task.id, *(one.id for one in many)}
        self.assertEqual({one["id"] for one in self.client.tasks(queue="lost")}, ids)
        self.assertEqual(len(ids), 4)

    def test_a_change_without_a_key_is_sent_once(self) -> None:
        proxy = self.cutting(0, 100)
        task = self.client.submit("once", "run")
        with self.through(proxy) as client, self.assertRaises(Unreachable) as raised:
            client.cancel(task)
        self.assertEqual(proxy.connections, 1)
        self.assertIn(proxy.url, str(raised.exception))
        self.assertIn("ostler up", str(raised.exception))

    def test_an_answer_that_is_cut_in_the_middle_is_asked_for_again(self) -> None:
        proxy = self.cutting(700, 1)
        with self.through(proxy) as client:
            self.assertEqual([node["name"] for node in client.nodes()], ["scenario"])
        self.assertEqual(proxy.connections, 2)

    def test_results_of_a_job_that_are_cut_are_not_taken_for_all_of_them(self) -> None:
        job = self.client.jobs.create("nowhere", [f"item {n}" for n in range(200)])
        with self.through(self.cutting(5_000, 1)) as client:
            seen = []
            with self.assertRaises(Unreachable) as raised:
                for result in client.jobs.results(job["id"]):
                    seen.append(result["number"])
        self.assertEqual(raised.exception.code, "incomplete")
        self.assertEqual(seen, list(range(1, len(seen) + 1)))
        self.assertEqual(len(list(self.client.jobs.results(job["id"]))), 200)
        self.client.jobs.cancel(job["id"])

    # -- streams --

    def test_a_stream_that_is_cut_again_and_again_has_no_gap_and_no_double(self) -> None:
        task = self.client.submit("shell", "run", {"script": TALK})
        proxy = self.cutting(1_100, 3)
        with self.through(proxy) as client:
            followed = list(client.follow(task))
        self.assertEqual(followed, self.client.task_events(task)["events"])
        self.assertGreater(proxy.connections, 1, "it was cut")

    def test_so_it_is_with_asyncio(self) -> None:
        async def follow(client: AsyncClient) -> list[Any]:
            return [event async for event in client.follow(task)]

        task = self.client.submit("shell", "run", {"script": TALK})
        proxy = self.cutting(1_100, 3)
        followed = asyncio.run(follow(self.through(proxy, AsyncClient)))
        self.assertEqual(followed, self.client.task_events(task)["events"])
        self.assertGreater(proxy.connections, 1, "it was cut")

    def test_a_caller_that_leaves_closes_the_stream(self) -> None:
        task = self.client.submit("shell", "run", {"script": "echo begun >&2; sleep 600"})
        proxy = self.cutting(0, 0)
        with self.through(proxy) as client:
            events = client.follow(task)
            self.assertEqual(next(events)["data"], "begun")
            events.close()
            self.assertTrue(proxy.closed_by_client.wait(MAX_WAIT_S))
        self.client.cancel(task)
        self.client.wait(task, MAX_WAIT_S)

    # -- asyncio --

    def test_a_cancelled_wait_closes_its_connection(self) -> None:
        task = self.client.submit("parked", "run")
        proxy = self.cutting(0, 0)

        async def leave() -> None:
            client = self.through(proxy, AsyncClient)
            waiting = asyncio.ensure_future(client.wait(task))
            while not proxy.connections:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting

        asyncio.run(leave())
        self.assertTrue(proxy.closed_by_client.wait(MAX_WAIT_S))

    def test_many_calls_run_at_once(self) -> None:
        async def collect() -> list[Any]:
            async with AsyncClient(self.node.url, token_file=self.node.token_file) as client:
                tasks = await client.submit_many({"queue": "shell", "kind": "run", "payload": {"script": f"echo {n}"}} for n in range(20))
                return await asyncio.gather(*(client.result(task, wait=MAX_WAIT_S) for task in tasks))

        # Output that is JSON is JSON.
        self.assertEqual([str(one) for one in asyncio.run(collect())], [str(n) for n in range(20)])

    # -- threads --

    def test_threads_share_a_client_and_its_connections(self) -> None:
        proxy = self.cutting(0, 0)
        with self.through(proxy) as client, ThreadPoolExecutor(4) as threads:
            tasks = list(threads.map(lambda n: client.submit("threads", "run", {"n": n}), range(40)))
            self.assertLessEqual(proxy.connections, 8, "connections are used again")
        self.assertEqual({task.id for task in tasks}, {one["id"] for one in self.client.tasks(queue="threads", limit=7)})

    # -- bounds and payloads --

    def test_more_tasks_than_fit_into_one_request_are_sent_in_several(self) -> None:
        tasks = [{"queue": "thousands", "kind": "run", "payload": n} for n in range(1_001)]
        done = self.client.submit_many(tasks, idempotency_key="bulk")
        self.assertEqual((len(done), {one.result for one in done}), (1_001, {"created"}))
        self.assertEqual(self.client.submit_many(tasks, idempotency_key="bulk"), done, "a repeated call makes nothing twice")
        self.assertEqual(self.client.stats(queue="thousands")["tasks"]["queued"], 1_001)

    def test_a_payload_comes_back_as_it_was(self) -> None:
        payload = {"whole": 2**70, "small": 1e-7, "text": "ü\u2028\U0001f40e", "none": None, "deep": [[1.5]]}
        task = self.client.submit("parked", "run", payload, key="a/b c:ü")
        self.assertEqual(self.client.task(task)["payload"], payload)
        self.assertEqual(self.client.task("key:a/b c:ü", queue="parked")["id"], task.id)

    def test_ids_of_the_callers_own_are_taken_once(self) -> None:
        id = "01ARZ3NDEKTSV4RRFFQ69G5FA0"
        self.assertEqual(self.client.submit("own", "run", id=id).id, id)
        tasks = [{"queue": "own", "kind": "run", "id": id}, {"queue": "own", "kind": "run"}]
        first, second = self.client.submit_many(tasks)
        self.assertEqual((first.id, first.result), (id, "existing"))
        self.assertEqual(second.result, "created")

    def test_as_completed_gives_each_task_once_whatever_the_order(self) -> None:
        slow = self.client.submit("shell", "run", {"script": "sleep 1; echo slow"})
        fast = [self.client.submit("shell", "run", {"script": f"echo {name}"}) for name in "ab"]
        ends = [end["output"] for end in self.client.as_completed([slow, *fast, fast[0]], MAX_WAIT_S)]
        self.assertEqual(ends, ["a", "b", "slow"])

    def test_as_completed_is_bounded_in_time(self) -> None:
        parked = [self.client.submit("parked", "run") for _ in range(3)]
        with self.assertRaises(TimeoutError):
            list(self.client.as_completed(parked, 0.3))


class WithNodeOfItsOwn(unittest.TestCase):
    def test_the_overview_goes_on_after_a_killed_node(self) -> None:
        node = Served()
        self.addCleanup(node.close)

        def waiting(now: Any) -> int:
            return int(now["stats"]["tasks"]["queued"])

        with Client(node.url, token_file=node.token_file) as client:
            live = client.live()
            first = next(live)
            self.assertEqual((waiting(first), [one["name"] for one in first["nodes"]]), (0, ["scenario"]))
            client.submit("parked", "run")
            self.assertEqual(next(waiting(now) for now in live if waiting(now)), 1)
            node.stop()
            node.start()
            client.submit("parked", "run")
            self.assertEqual(next(waiting(now) for now in live if waiting(now) != 1), 2)

        async def watch() -> int:
            async with AsyncClient(node.url, token_file=node.token_file) as client:
                async for now in client.live():
                    return waiting(now)
            raise AssertionError("it has no end")

        self.assertEqual(asyncio.run(watch()), 2)

    def test_a_wait_survives_a_killed_node(self) -> None:
        node = Served()
        self.addCleanup(node.close)
        with Client(node.url, token_file=node.token_file) as client, ThreadPoolExecutor(1) as threads:
            task = client.submit("shell", "run", {"script": "echo again"}, in_=2)
            waiting = threads.submit(client.result, task, MAX_WAIT_S)
            with self.assertRaises(NotFinished):
                client.result(task)
            node.stop()
            node.start()
            self.assertEqual(waiting.result(MAX_WAIT_S), "again")

    def test_an_address_with_a_base_path_and_a_variable_for_it(self) -> None:
        import os
        import socket
        from unittest import mock

        from served import SCENARIO

        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        node = Served([*SCENARIO["config"], "[api]", 'base_path = "/ostler"'], url)
        self.addCleanup(node.close)
        with mock.patch.dict(os.environ, OSTLER_SERVER=f"{url}/ostler/", OSTLER_TOKEN=node.token("owner")):
            with Client() as client:
                self.assertEqual(client.request("GET", "session"), {"name": "owner", "access": "full"})
        with Client(f"{url}/elsewhere", node.token("owner")) as client, self.assertRaises(OstlerError):
            client.stats()


if __name__ == "__main__":
    unittest.main()
