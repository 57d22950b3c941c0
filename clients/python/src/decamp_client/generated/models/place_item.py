from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


T = TypeVar("T", bound="PlaceItem")


@_attrs_define
class PlaceItem:
    """
    Attributes:
        name (str): name for place:NAME?staging=/FOLDER in a plan
        to (str): its destination without parameters, as proxmox:https://pve1:8006/pve1
    """

    name: str
    to: str

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        to = self.to

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "name": name,
                "to": to,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        to = d.pop("to")

        place_item = cls(
            name=name,
            to=to,
        )

        return place_item
