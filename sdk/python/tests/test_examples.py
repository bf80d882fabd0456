"""The workers in examples/, as a node would start them: each speaks the protocol, and they do the same."""

from __future__ import annotations

import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from node import SDK, Node

ROOT = SDK.parent.parent
EXAMPLES = ROOT / "examples"


class Examples(unittest.TestCase):
    commands: dict[str, tuple[str, ...]]

    @classmethod
    def setUpClass(cls) -> None:
        # As after `npm install ./sdk/js`.
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        modules = Path(folder.name, "node_modules")
        modules.mkdir()
        (modules / "ostler").symlink_to(ROOT / "sdk" / "js")
        script = shutil.copy(EXAMPLES / "worker.mjs", folder.name)
        cls.commands = {
            "bash": ("bash", str(EXAMPLES / "worker.sh")),
            "python": (sys.executable, str(EXAMPLES / "worker.py")),
            "js": ("node", str(script)),
        }

    def each(self) -> Any:
        for language, command in self.commands.items():
            with self.subTest(language):
                node = Node(*command)
                try:
                    yield node
                finally:
                    node.close()

    def test_each_counts_words_and_keeps_its_step(self) -> None:
        for node in self.each():
            self.assertEqual(node.greet()["kinds"], ["count"])
            step, *progress, result = node.do("count", {"text": ' to be\n or\t"not" \\ü'})
            words = ["to", "be", "or", '"not"', "\\ü"]
            self.assertEqual(step, {"type": "step", "name": "split", "value": words})
            self.assertEqual(progress[-1], {"type": "progress", "done": 5, "total": 5})
            self.assertEqual(result, {"type": "result", "ok": True, "output": {"words": 5}})
            node.say(type="weather")
            said = node.do("count", {"text": "to be"}, steps={"split": ["a", "b", "c"]}, attempt=2)
            self.assertEqual(said[0]["type"], "progress", "a step of an earlier attempt is not done again")
            self.assertEqual(said[-1]["output"], {"words": 3})
            node.say(type="stop")
            code, out, err = node.end()
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(len(out.splitlines()), 2, "what is printed stays apart from frames")

    def test_each_fails_for_good_without_a_text(self) -> None:
        for node in self.each():
            node.greet()
            for payload in ({}, {"text": 7}):
                error = node.do("count", payload)[0]["error"]
                self.assertEqual((error["class"], error["message"]), ("permanent", "the payload has no text"))

    def test_each_stops_at_a_step_when_it_is_told(self) -> None:
        for node in self.each():
            node.greet()
            for type in ("cancel", "lost"):
                about = node.give("count", {"text": "x"})
                node.hear()
                node.say(type=type, reason="the test", **about)
                result = node.hear()
                self.assertEqual((result["type"], result["ok"], result["id"]), ("result", False, about["id"]))

    def test_each_ends_when_the_node_is_gone(self) -> None:
        for node in self.each():
            node.greet()
            node.give("count", {"text": "x"})
            node.hear()
            node.socket.shutdown(2)
            self.assertEqual(node.end()[0], 1)


if __name__ == "__main__":
    unittest.main()
