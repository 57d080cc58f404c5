"""Write what README.md says of the code from the code: the settings table and the file tree.

    .venv/bin/python -m scripts.update_readme

A file's comment is the first sentence of its docstring.
"""

import ast
import re
from pathlib import Path

from app.settings import env_example, settings_table

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ENV_EXAMPLE = ROOT / ".env.example"
OTHERS = {
    "tests/": "mirrors the tree; engine/ and e2e/ run the real thing; fixtures/ has the reference's numbers",
    "requirements/": "exact versions: cpu.lock, cuda.lock, dev.lock",
    "scripts/": "what the Makefile's verbs do",
    "Makefile": "setup, serve, test, lint, bench, gpu-check",
    ".env.example": "every setting with its default",
}
# The order of the data's way; what is not named follows in the alphabet's.
ORDER = (
    "app", "models", "bench",
    "cli.py", "server.py", "main.py", "engines.py", "lifecycle.py", "settings.py", "errors.py", "schemas.py",
    "voice_schemas.py", "routes", "speaking.py", "sessions", "text",
    "start.py", "options.py", "resources.py", "build.py", "checkpoint.py",
    "utterance.py",
    "speech.py", "engine.py", "pipeline", "audio", "language", "voices",
    "plugin.py", "compat.py", "runtime", "worker.py", "runner.py", "request_state.py", "audio_channel.py",
    "voxcpm2", "config.py", "limits.py", "prompt.py", "tokenizer.py", "content_ids.py", "scaffold.py",
    "slots.py", "local_encoder.py", "minicpm4_paged.py", "minicpm4_local.py", "rope.py", "fsq.py",
    "flow_matching.py", "local_dit.py", "audio_vae.py",
)  # fmt: skip


def summary(path: Path) -> str:
    """First sentence of a Python file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"(?<=\.)\s", docstring.replace("\n", " "), maxsplit=1)[0]
    return sentence.rstrip(".")


def _rank(path: Path) -> tuple[int, bool, str]:
    return ORDER.index(path.name) if path.name in ORDER else len(ORDER), path.is_dir(), path.name


def tree_lines(folder: Path, depth: int = 0) -> list[str]:
    """A folder and what is below it, one line each."""
    indent = "  " * depth
    lines = [_line(f"{indent}{folder.name}/", summary(folder / "__init__.py"))]
    for path in sorted(folder.iterdir(), key=_rank):
        if path.is_dir() and (path / "__init__.py").exists():
            lines += tree_lines(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(_line(f"{indent}  {path.name}", summary(path)))
    return lines


def _line(name: str, comment: str) -> str:
    return f"{name:<28} {comment}"


def file_tree() -> str:
    """The tree as a Markdown code block."""
    lines = [line for root in ("app", "models", "bench") for line in tree_lines(ROOT / root)]
    lines += [_line(name, comment) for name, comment in OTHERS.items()]
    return "\n".join(("```", *lines, "```"))


def filled(text: str) -> str:
    """`text` with both sections as they should be."""
    for name, content in (("settings", settings_table()), ("tree", file_tree())):
        text = re.sub(
            f"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda match, content=content: f"{match[1]}{content}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
    ENV_EXAMPLE.write_text(env_example(), encoding="utf-8")
