"""Errors that a client of the HTTP API raises: one class for each thing that a caller does about it."""

from __future__ import annotations

from typing import Any, Optional


class OstlerError(Exception):
    """A request was not done. ``code`` is for programs and never changes; ``details`` names such things as the wrong field.

    ``status`` is the HTTP status; ``None``: the client itself found the error, and nothing was sent or nothing came back.
    """

    def __init__(self, code: str, message: str, details: Any = None, status: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
        self.status = status

    def __reduce__(self) -> Any:
        # The default passes on the message only, and an error must survive the way out of a process pool.
        return (type(self), (self.code, self.message, self.details, self.status))


class Invalid(OstlerError):
    """A value is wrong, or more than a bound allows; ``details`` has the field. Repeating it is of no use."""


class NotFound(OstlerError):
    """There is no such task, job, queue or path."""


class Conflict(OstlerError):
    """The state of a thing does not allow it, or a key is taken."""


class QueueFull(OstlerError):
    """The queue has as many waiting tasks as it may have: submit more slowly, or later."""


class Unauthorized(OstlerError):
    """The node does not know the token, or there is none."""


class Forbidden(OstlerError):
    """The token may only look."""


class Unavailable(OstlerError):
    """The node or its store cannot answer now. Repeating it later may help."""


class Unreachable(OstlerError, ConnectionError):
    """Nothing answers at the address, or the connection was lost and repeating did not help."""


class Unsuccessful(OstlerError):
    """There is no output. ``task`` is what the API says about the end: id, state, output, error."""

    def __init__(self, code: str, message: str, task: "dict[str, Any]") -> None:
        super().__init__(code, message, task.get("error"))
        self.task = task

    @property
    def task_class(self) -> Optional[str]:
        """The class of the task's error, such as ``"permanent"`` or ``"timeout"``."""
        error: Optional[dict[str, Any]] = self.task.get("error")
        return error.get("class") if error else None

    def __reduce__(self) -> Any:
        return (type(self), (self.code, self.message, self.task))


class TaskFailed(Unsuccessful):
    """The task failed for good, and is a dead letter."""


class TaskCancelled(Unsuccessful):
    """The task was cancelled."""


class NotFinished(Unsuccessful, TimeoutError):
    """The task has not ended, or not in time. It goes on."""


_BY_STATUS: "dict[int, type[OstlerError]]" = {
    400: Invalid, 413: Invalid, 414: Invalid, 415: Invalid, 404: NotFound, 409: Conflict, 401: Unauthorized, 403: Forbidden,
    502: Unavailable, 503: Unavailable, 504: Unavailable,
}  # fmt: skip
TOKEN_HINT = "pass token= or token_file=, or set OSTLER_TOKEN"


def of_answer(status: int, body: Any) -> OstlerError:
    """The error of an answer that is no success. A proxy's answer may have no JSON."""
    error = body.get("error") if isinstance(body, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    told: dict[str, Any] = error if isinstance(error, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    code, message = str(told.get("code", "http_error")), str(told.get("message", f"the answer has the status {status}"))
    if status == 401:
        message = f"{message} ({TOKEN_HINT})"
    kind = QueueFull if code == "queue_full" else _BY_STATUS.get(status, OstlerError)
    return kind(code, message, told.get("details"), status)
