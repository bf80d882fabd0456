"""The client and the worker of the README, as a reader would run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from served import MAX_WAIT_S, SDK, Served


class Readme(unittest.TestCase):
    def test_the_client_and_the_worker_of_the_page_work_together(self) -> None:
        page = (SDK / "README.md").read_text()
        scratch = tempfile.TemporaryDirectory(prefix="ostler-")
        self.addCleanup(scratch.cleanup)
        folder = Path(scratch.name)
        # As after `pip install ./sdk/python`.
        shutil.copytree(SDK / "ostler", folder / "ostler", ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL):
            (folder / name).write_text(text)
        config = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
        assert config, "the page has a config"
        node = Served(config[1].splitlines(), folder=folder)
        self.addCleanup(node.close)
        environment = {**os.environ, "OSTLER_SERVER": node.url}
        collected = subprocess.run(
            [sys.executable, "collect.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, timeout=MAX_WAIT_S, check=True
        )
        self.assertEqual(collected.stdout.decode(), "[{'words': 2}, {'words': 4}]\n")


if __name__ == "__main__":
    unittest.main()
