"""The README's fenced blocks, run against a server of a test's own.

The word after the language says where: none, the speech server; `llm`, one that has a language engine;
`no-run`, nowhere.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.server_process import ROOT, ServerProcess

BLOCK = re.compile(r"^```(sh|python)([ \w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AUDIO_FILE = re.compile(r"[\w-]+\.(?:wav|pcm)\b")
README_ADDRESS = "localhost:8000"
INTERPRETERS = {"sh": ("bash", "-e", "-c"), "python": (sys.executable, "-c")}


def blocks(mark: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of one mark."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [(language, code) for language, found, code in BLOCK.findall(text) if found.strip() == mark]


def run_block(server: ServerProcess, directory: Path, language: str, block: str) -> str:
    """Run it in an empty directory, check the files it writes, and give what it prints."""
    assert README_ADDRESS in block, "mark it `no-run`: only what speaks to the server runs here"
    code = block.replace(README_ADDRESS, server.url.removeprefix("http://"))
    done = subprocess.run(
        [*INTERPRETERS[language], code],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    sizes = {path.name: path.stat().st_size for path in directory.iterdir()}
    assert set(sizes) == set(AUDIO_FILE.findall(block)), "the files that the block names are those it writes"
    assert all(sizes.values()), sizes
    return done.stdout
