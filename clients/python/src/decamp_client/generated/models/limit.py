from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


T = TypeVar("T", bound="Limit")


@_attrs_define
class Limit:
    """
    Attributes:
        name (str):
        rev (int):
        units (int):
    """

    name: str
    rev: int
    units: int

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        rev = self.rev

        units = self.units

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "name": name,
                "rev": rev,
                "units": units,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        rev = d.pop("rev")

        units = d.pop("units")

        limit = cls(
            name=name,
            rev=rev,
            units=units,
        )

        return limit
