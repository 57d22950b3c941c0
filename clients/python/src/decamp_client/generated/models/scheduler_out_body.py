from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import Union
import datetime


T = TypeVar("T", bound="SchedulerOutBody")


@_attrs_define
class SchedulerOutBody:
    """
    Attributes:
        at (Union[Unset, datetime.datetime]): time of the last write; missing if it was not written yet
        state (Union[Unset, Any]): resources and waiting VMs, in the format of this release's scheduler
    """

    at: Union[Unset, datetime.datetime] = UNSET
    state: Union[Unset, Any] = UNSET

    def to_dict(self) -> dict[str, Any]:
        at: Union[Unset, str] = UNSET
        if not isinstance(self.at, Unset):
            at = self.at.isoformat()

        state = self.state

        field_dict: dict[str, Any] = {}

        field_dict.update({})
        if at is not UNSET:
            field_dict["at"] = at
        if state is not UNSET:
            field_dict["state"] = state

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        _at = d.pop("at", UNSET)
        at: Union[Unset, datetime.datetime]
        if isinstance(_at, Unset):
            at = UNSET
        else:
            at = isoparse(_at)

        state = d.pop("state", UNSET)

        scheduler_out_body = cls(
            at=at,
            state=state,
        )

        return scheduler_out_body
