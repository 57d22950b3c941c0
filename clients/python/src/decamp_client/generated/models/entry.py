from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import Union
import datetime


T = TypeVar("T", bound="Entry")


@_attrs_define
class Entry:
    """
    Attributes:
        action (str):
        from_ (str):
        id (int):
        on (str):
        role (str):
        time (datetime.datetime):
        user (str):
        err (Union[Unset, str]):
    """

    action: str
    from_: str
    id: int
    on: str
    role: str
    time: datetime.datetime
    user: str
    err: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        action = self.action

        from_ = self.from_

        id = self.id

        on = self.on

        role = self.role

        time = self.time.isoformat()

        user = self.user

        err = self.err

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "action": action,
                "from": from_,
                "id": id,
                "on": on,
                "role": role,
                "time": time,
                "user": user,
            }
        )
        if err is not UNSET:
            field_dict["err"] = err

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        action = d.pop("action")

        from_ = d.pop("from")

        id = d.pop("id")

        on = d.pop("on")

        role = d.pop("role")

        time = isoparse(d.pop("time"))

        user = d.pop("user")

        err = d.pop("err", UNSET)

        entry = cls(
            action=action,
            from_=from_,
            id=id,
            on=on,
            role=role,
            time=time,
            user=user,
            err=err,
        )

        return entry
