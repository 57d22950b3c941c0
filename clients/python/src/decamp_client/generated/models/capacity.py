from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


T = TypeVar("T", bound="Capacity")


@_attrs_define
class Capacity:
    """
    Attributes:
        name (str): host:esx1/vms, host:*/vms, worker:w1/vms, host:esx1/rate
        units (int): of a capacity; bytes a second of a rate; 0 is a pause, -1 takes the limit back
    """

    name: str
    units: int

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        units = self.units

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "name": name,
                "units": units,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        units = d.pop("units")

        capacity = cls(
            name=name,
            units=units,
        )

        return capacity
