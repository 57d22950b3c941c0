from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union


T = TypeVar("T", bound="Rehearsal")


@_attrs_define
class Rehearsal:
    """
    Attributes:
        id (str):
        deadline (Union[Unset, int]):
        expect (Union[Unset, str]):
    """

    id: str
    deadline: Union[Unset, int] = UNSET
    expect: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        id = self.id

        deadline = self.deadline

        expect = self.expect

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "id": id,
            }
        )
        if deadline is not UNSET:
            field_dict["deadline"] = deadline
        if expect is not UNSET:
            field_dict["expect"] = expect

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        id = d.pop("id")

        deadline = d.pop("deadline", UNSET)

        expect = d.pop("expect", UNSET)

        rehearsal = cls(
            id=id,
            deadline=deadline,
            expect=expect,
        )

        return rehearsal
