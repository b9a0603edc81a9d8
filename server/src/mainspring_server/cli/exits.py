"""How the command ends: the exit codes that scripts rely on, and the error that carries one."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can tell apart; `docs/reference/cli.md` has the same table."""

    OK = 0
    TASK_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    INVALID = 4
    UNAVAILABLE = 5
    CONFLICT = 6
    EXHAUSTED = 7
    DENIED = 8
    UNIMPLEMENTED = 9
    INTERNAL = 10
    TIMED_OUT = 124
    INTERRUPTED = 130


# gRPC's canonical status names; whatever is not listed is INTERNAL.
_BY_STATUS = {
    "CANCELLED": ExitCode.INTERRUPTED,
    "NOT_FOUND": ExitCode.NOT_FOUND,
    "INVALID_ARGUMENT": ExitCode.INVALID,
    "OUT_OF_RANGE": ExitCode.INVALID,
    "UNAVAILABLE": ExitCode.UNAVAILABLE,
    "DEADLINE_EXCEEDED": ExitCode.UNAVAILABLE,
    "ALREADY_EXISTS": ExitCode.CONFLICT,
    "FAILED_PRECONDITION": ExitCode.CONFLICT,
    "ABORTED": ExitCode.CONFLICT,
    "RESOURCE_EXHAUSTED": ExitCode.EXHAUSTED,
    "UNAUTHENTICATED": ExitCode.DENIED,
    "PERMISSION_DENIED": ExitCode.DENIED,
    "UNIMPLEMENTED": ExitCode.UNIMPLEMENTED,
}


def exit_code_of(status: str) -> ExitCode:
    """The exit code of a call that ended with the gRPC status of this name."""
    return _BY_STATUS.get(status, ExitCode.INTERNAL)


class CliError(Exception):
    """What went wrong, in the user's words, what to do next, and how the command exits."""

    def __init__(
        self,
        message: str,
        code: ExitCode,
        *,
        hint: str = "",
        reason: str = "",
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.reason = reason
        self.field = field

    def document(self) -> dict[str, object]:
        """The error as `--json` prints it, on stderr."""
        found: dict[str, object] = {"message": self.message, "exit_code": int(self.code)}
        optional = {"reason": self.reason, "field": self.field, "hint": self.hint}
        found.update({key: value for key, value in optional.items() if value})
        return {"error": found}


def usage_error(message: str, *, hint: str = "") -> CliError:
    """A command line that cannot be right, found before any call is made."""
    return CliError(message, ExitCode.USAGE, hint=hint)
