from enum import Enum


class ProblemKind(str, Enum):
    CANCELED = "canceled"
    CHANGED = "changed"
    CONFLICT = "conflict"
    CORRUPT = "corrupt"
    DENIED = "denied"
    FULL = "full"
    INTERNAL = "internal"
    INVALID = "invalid"
    NOT_FOUND = "not-found"
    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    UNSUPPORTED = "unsupported"

    def __str__(self) -> str:
        return str(self.value)
