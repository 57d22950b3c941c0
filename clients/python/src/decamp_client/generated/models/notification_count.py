from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union


T = TypeVar("T", bound="NotificationCount")


@_attrs_define
class NotificationCount:
    """
    Attributes:
        count (int):
        receiver (str):
        state (str):
        failure (Union[Unset, str]):
    """

    count: int
    receiver: str
    state: str
    failure: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        count = self.count

        receiver = self.receiver

        state = self.state

        failure = self.failure

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "count": count,
                "receiver": receiver,
                "state": state,
            }
        )
        if failure is not UNSET:
            field_dict["failure"] = failure

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        count = d.pop("count")

        receiver = d.pop("receiver")

        state = d.pop("state")

        failure = d.pop("failure", UNSET)

        notification_count = cls(
            count=count,
            receiver=receiver,
            state=state,
            failure=failure,
        )

        return notification_count
