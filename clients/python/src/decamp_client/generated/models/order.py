from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


from ..models.order_command import OrderCommand


T = TypeVar("T", bound="Order")


@_attrs_define
class Order:
    """
    Attributes:
        command (OrderCommand): pause: begin no transfer; cutover: of warm VMs, switch over now; cancel: stop and undo;
            retry: of those that failed; rollback: cancel, and the source runs again
    """

    command: OrderCommand

    def to_dict(self) -> dict[str, Any]:
        command = self.command.value

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "command": command,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        command = OrderCommand(d.pop("command"))

        order = cls(
            command=command,
        )

        return order
