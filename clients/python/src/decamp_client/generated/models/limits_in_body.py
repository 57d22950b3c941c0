from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define


if TYPE_CHECKING:
    from ..models.capacity import Capacity


T = TypeVar("T", bound="LimitsInBody")


@_attrs_define
class LimitsInBody:
    """
    Attributes:
        limits (list['Capacity']):
    """

    limits: list["Capacity"]

    def to_dict(self) -> dict[str, Any]:
        limits = []
        for limits_item_data in self.limits:
            limits_item = limits_item_data.to_dict()
            limits.append(limits_item)

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "limits": limits,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.capacity import Capacity

        d = dict(src_dict)
        limits = []
        _limits = d.pop("limits")
        for limits_item_data in _limits:
            limits_item = Capacity.from_dict(limits_item_data)

            limits.append(limits_item)

        limits_in_body = cls(
            limits=limits,
        )

        return limits_in_body
