from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union


T = TypeVar("T", bound="RehearsalInBody")


@_attrs_define
class RehearsalInBody:
    """
    Attributes:
        deadline (Union[Unset, int]): nanoseconds that the guest may take; 0: 5 minutes, emulated 15
        expect (Union[Unset, str]): text on the serial port or text screen that means the guest is up, beside a login
            and its network
    """

    deadline: Union[Unset, int] = UNSET
    expect: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        deadline = self.deadline

        expect = self.expect

        field_dict: dict[str, Any] = {}

        field_dict.update({})
        if deadline is not UNSET:
            field_dict["deadline"] = deadline
        if expect is not UNSET:
            field_dict["expect"] = expect

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        deadline = d.pop("deadline", UNSET)

        expect = d.pop("expect", UNSET)

        rehearsal_in_body = cls(
            deadline=deadline,
            expect=expect,
        )

        return rehearsal_in_body
