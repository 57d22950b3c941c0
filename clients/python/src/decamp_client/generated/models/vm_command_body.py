from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


from ..models.vm_command_body_command import VmCommandBodyCommand


T = TypeVar("T", bound="VmCommandBody")


@_attrs_define
class VmCommandBody:
    """
    Attributes:
        command (VmCommandBodyCommand): as for a plan; withdraw: rollback, also of a published VM, which is removed from
            its target with all data written to it since; it requires the role admin
    """

    command: VmCommandBodyCommand

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
        command = VmCommandBodyCommand(d.pop("command"))

        vm_command_body = cls(
            command=command,
        )

        return vm_command_body
