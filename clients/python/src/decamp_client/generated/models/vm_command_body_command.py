from enum import Enum


class VmCommandBodyCommand(str, Enum):
    CANCEL = "cancel"
    CUTOVER = "cutover"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    ROLLBACK = "rollback"
    WITHDRAW = "withdraw"

    def __str__(self) -> str:
        return str(self.value)
