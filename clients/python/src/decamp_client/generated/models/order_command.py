from enum import Enum


class OrderCommand(str, Enum):
    CANCEL = "cancel"
    CUTOVER = "cutover"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    ROLLBACK = "rollback"

    def __str__(self) -> str:
        return str(self.value)
