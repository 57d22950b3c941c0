from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


T = TypeVar("T", bound="DrainInBody")


@_attrs_define
class DrainInBody:
    """
    Attributes:
        drain (bool): false: it gets VMs again
    """

    drain: bool

    def to_dict(self) -> dict[str, Any]:
        drain = self.drain

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "drain": drain,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        drain = d.pop("drain")

        drain_in_body = cls(
            drain=drain,
        )

        return drain_in_body
