"""Log lines."""

import logging

from app.logs import LineFormatter, request_id


def test_a_record_is_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord(
            "app.x", logging.ERROR, "", 0, 'said "%s"', ("a\nb",), (ValueError, error, error.__traceback__)
        )
    token = request_id.set("id-1")
    line = LineFormatter().format(record)
    request_id.reset(token)
    assert "\n" not in line
    assert ' level=error logger=app.x request_id=id-1 msg="said \\"a\\nb\\"" exc="Traceback' in line
