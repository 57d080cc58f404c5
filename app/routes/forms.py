"""Bodies that FastAPI does not read by itself: forms with a file, and JSON on the same route."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

import pydantic_core
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.disconnect import ClientGone
from app.errors import InvalidRequest

FORM, JSON = "multipart/form-data", "application/json"
MAX_FILES, MAX_FIELDS = 2, 32  # one file and a dozen fields are of use; the rest is to be told what is wrong
MAX_FIELD_BYTES = 2**16  # the longest text takes a third of it

B = TypeVar("B", bound=BaseModel)


@dataclass
class Form:
    """A form's fields by name."""

    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, BinaryIO] = field(default_factory=dict)

    def file(self, name: str) -> BinaryIO:
        """The only file, which has to be there.

        Raises:
            InvalidRequest: it is not, it is sent as a text, or there are others.
        """
        if name in self.texts:
            raise InvalidRequest(f"{name} is a text, not a file: send it with a file name", name)
        if name not in self.files:
            raise InvalidRequest(f"{name} is required", name)
        self.allow_files(name)
        return self.files[name]

    def allow_files(self, *names: str) -> None:
        """Raise `InvalidRequest` where there is a file of another name."""
        for other in self.files.keys() - set(names):
            raise InvalidRequest(f"{other[:64]!r} cannot be a file here", other[:64])


def media_type(request: Request) -> str:
    """What the body is declared as, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def not_served(*types: str) -> HTTPException:
    """The body is of none of these types."""
    return HTTPException(
        415, f"the body is not declared as {' or '.join(types)}: send it with such a content-type"
    )


@asynccontextmanager
async def read_form(request: Request) -> AsyncIterator[Form]:
    """A multipart body; its files are gone at the end.

    Raises:
        InvalidRequest, HTTPException: it is none that can be read.
        ClientGone: the client left in the midst of it.
    """
    reading = request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    try:
        parsed = await reading
    except ClientDisconnect:
        raise ClientGone from None
    except UnicodeError as error:
        raise InvalidRequest("the form is not in the character set that it declares: send UTF-8") from error
    try:
        form = Form()
        for name, value in parsed.multi_items():
            if name in form.texts or name in form.files:
                raise InvalidRequest(f"{name[:64]} is given twice: leave one out", name[:64])
            if isinstance(value, UploadFile):
                form.files[name] = value.file
            else:
                form.texts[name] = value
        yield form
    finally:
        await parsed.close()


async def read_json(request: Request) -> object:
    """A JSON body.

    Raises:
        InvalidRequest: it is none.
        ClientGone: the client left in the midst of it.
    """
    try:
        return pydantic_core.from_json(await request.body())
    except ClientDisconnect:
        raise ClientGone from None
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON ({error})") from error


def checked_form(model: type[B], texts: Mapping[str, str], required: tuple[str, ...] = ()) -> B:
    """The texts of a form as a model; empty ones count as left out, unless they are required."""
    given = {name: text for name, text in texts.items() if text.strip() or name in required}
    return _checked(model, given, strict=False)


def checked_json(model: type[B], body: object) -> B:
    """A JSON body as a model."""
    return _checked(model, body, strict=True)


def _checked(model: type[B], data: object, strict: bool) -> B:
    try:
        return model.model_validate(data, strict=strict)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error
