"""What can go wrong between asking and a well-formed answer. Catch `RagateError` to catch them all."""

from __future__ import annotations

from typing import Optional


class RagateError(Exception):
    """The server gave no usable answer. `kind` is a short stable word, for logs and counters."""

    kind = "error"


class UnreachableError(RagateError):
    """No connection, or one that broke off or does not speak HTTP: refused, unknown host, reset, TLS."""

    kind = "unreachable"


class TimedOutError(RagateError):
    """The answer was not there in time."""

    kind = "timeout"


class MalformedAnswerError(RagateError):
    """The status says success but the body is not what the route answers: another service on that port, or a proxy's page."""

    kind = "malformed"


class StatusError(RagateError):
    """The server refused or failed, and said so.

    status: the HTTP status. code: the server's word for it (`queue_full`, `invalid_field`), None where the body has none.
    param: the field that is to blame. request_id: for the server's log. retry_after: seconds, on 429 and 503.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: Optional[str] = None,
        param: Optional[str] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
    ):
        super().__init__(f"HTTP {status}" + (f" {code}" if code else "") + f": {message}")
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def kind(self) -> str:  # type: ignore[override]
        return f"status {self.status}"

    @property
    def temporary(self) -> bool:
        """True where the same request may succeed later: overload, start-up, a failure of the server."""
        return self.status in (408, 429) or self.status >= 500
