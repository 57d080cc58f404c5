"""What a source file imports, read without running it."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_files(package: str) -> list[Path]:
    """All modules of a top-level package."""
    return sorted((ROOT / package).rglob("*.py"))


def parse(path: Path) -> ast.Module:
    """A source file as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def import_statements(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """(module, name, bound as) of every import below; the name is empty where a module itself is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "relative imports are not used in this project"
            for alias in node.names:
                yield node.module, alias.name, alias.asname or alias.name


def is_module(name: str) -> bool:
    """Whether `name` is a module rather than something in one."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


def modules_imported(*trees: ast.AST) -> set[str]:
    """Modules imported anywhere in `trees`; `from package import module` counts as the module."""
    return {
        f"{module}.{name}" if name and is_module(f"{module}.{name}") else module
        for tree in trees
        for module, name, _ in import_statements(tree)
    }


def eager_statements(tree: ast.Module) -> list[ast.stmt]:
    """What runs when a module is imported: neither functions nor what type checkers alone read."""
    return [
        node
        for node in tree.body
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
