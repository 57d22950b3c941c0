from enum import Enum


class ListVMsStateItem(str, Enum):
    ASSIGNED = "assigned"
    CANCELED = "canceled"
    DONE = "done"
    FAILED = "failed"
    QUEUED = "queued"
    RUNNING = "running"
    STRANDED = "stranded"

    def __str__(self) -> str:
        return str(self.value)
