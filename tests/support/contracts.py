"""The words in which `tests/contract/` says what we rely on in a symbol of vLLM."""

import importlib
import inspect
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tests.support.imports import is_module


class Symbol:
    """A dotted name of vLLM, taken apart into its module, its owner and itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        parts = name.split(".")
        count = next(n for n in range(len(parts), 0, -1) if is_module(".".join(parts[:n])))
        self._module, self._path = ".".join(parts[:count]), parts[count:]
        self.leaf = parts[-1]

    @cached_property
    def owner(self) -> Any:
        """The class, object or module that the last part is an attribute of."""
        owner = importlib.import_module(self._module)
        for part in self._path[:-1]:
            owner = getattr(owner, part)
        return owner

    @property
    def value(self) -> Any:
        """The thing itself, which attributes of instances do not have."""
        return getattr(self.owner, self.leaf)

    def exists(self) -> bool:
        """Whether it is there: as an attribute, a field, or something that a method of the class assigns."""
        if hasattr(self.owner, self.leaf):
            return True
        if not isinstance(self.owner, type):
            return False
        return any(
            self.leaf in vars(cls).get("__annotations__", {})
            or re.search(rf"\bself\.{self.leaf}\b[^=\n]*=", inspect.getsource(cls))
            for cls in self.owner.__mro__
            if cls.__module__.startswith("vllm.")
        )

    @property
    def source(self) -> str:
        """Its source text."""
        return inspect.getsource(self.value)


Contract = Callable[[Symbol], None]


def exists(symbol: Symbol) -> None:
    assert symbol.exists(), "it is gone"


def parameters(*names: str) -> Contract:
    """A callable whose first parameters after `self` are these."""

    def check(symbol: Symbol) -> None:
        found = [name for name in inspect.signature(symbol.value).parameters if name != "self"]
        assert tuple(found[: len(names)]) == names, f"its parameters are {found}"

    return check


def accepts(*names: str) -> Contract:
    """A callable with these parameters among others."""

    def check(symbol: Symbol) -> None:
        missing = set(names) - set(inspect.signature(symbol.value).parameters)
        assert not missing, f"it has no parameters {missing}"

    return check


def fields(**expected: str) -> Contract:
    """A class with these annotations."""

    def check(symbol: Symbol) -> None:
        hints = {name: str(hint) for name, hint in inspect.get_annotations(symbol.value).items()}
        for name, part in expected.items():
            assert name in hints, f"it has no field {name}"
            assert part in hints[name], f"its field {name} is {hints[name]}"

    return check


def annotated(part: str) -> Contract:
    """An annotated attribute whose type mentions `part`."""

    def check(symbol: Symbol) -> None:
        exists(symbol)
        hint = str(inspect.get_annotations(symbol.owner)[symbol.leaf])
        assert part in hint, f"its type is {hint}"

    return check


def method(name: str, contains: str) -> Contract:
    """Another method of the same class does something with it."""

    def check(symbol: Symbol) -> None:
        exists(symbol)
        source = inspect.getsource(getattr(symbol.owner, name))
        assert contains in source, f"{symbol.owner.__name__}.{name} no longer has `{contains}`"

    return check


def all_of(*contracts: Contract) -> Contract:
    def check(symbol: Symbol) -> None:
        for contract in contracts:
            contract(symbol)

    return check
