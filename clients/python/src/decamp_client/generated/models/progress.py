from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import Union
import datetime

if TYPE_CHECKING:
    from ..models.busy import Busy


T = TypeVar("T", bound="Progress")


@_attrs_define
class Progress:
    """
    Attributes:
        at (datetime.datetime):
        done (int):
        plan (str):
        rate (int):
        read (int):
        total (int):
        vm (str):
        busy (Union[Unset, Busy]):
        dirty (Union[Unset, int]):
        outage (Union[Unset, int]):
        reread (Union[Unset, int]):
        round_ (Union[Unset, int]):
        silent (Union[Unset, bool]):
    """

    at: datetime.datetime
    done: int
    plan: str
    rate: int
    read: int
    total: int
    vm: str
    busy: Union[Unset, "Busy"] = UNSET
    dirty: Union[Unset, int] = UNSET
    outage: Union[Unset, int] = UNSET
    reread: Union[Unset, int] = UNSET
    round_: Union[Unset, int] = UNSET
    silent: Union[Unset, bool] = UNSET

    def to_dict(self) -> dict[str, Any]:
        at = self.at.isoformat()

        done = self.done

        plan = self.plan

        rate = self.rate

        read = self.read

        total = self.total

        vm = self.vm

        busy: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.busy, Unset):
            busy = self.busy.to_dict()

        dirty = self.dirty

        outage = self.outage

        reread = self.reread

        round_ = self.round_

        silent = self.silent

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "at": at,
                "done": done,
                "plan": plan,
                "rate": rate,
                "read": read,
                "total": total,
                "vm": vm,
            }
        )
        if busy is not UNSET:
            field_dict["busy"] = busy
        if dirty is not UNSET:
            field_dict["dirty"] = dirty
        if outage is not UNSET:
            field_dict["outage"] = outage
        if reread is not UNSET:
            field_dict["reread"] = reread
        if round_ is not UNSET:
            field_dict["round"] = round_
        if silent is not UNSET:
            field_dict["silent"] = silent

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.busy import Busy

        d = dict(src_dict)
        at = isoparse(d.pop("at"))

        done = d.pop("done")

        plan = d.pop("plan")

        rate = d.pop("rate")

        read = d.pop("read")

        total = d.pop("total")

        vm = d.pop("vm")

        _busy = d.pop("busy", UNSET)
        busy: Union[Unset, Busy]
        if isinstance(_busy, Unset):
            busy = UNSET
        else:
            busy = Busy.from_dict(_busy)

        dirty = d.pop("dirty", UNSET)

        outage = d.pop("outage", UNSET)

        reread = d.pop("reread", UNSET)

        round_ = d.pop("round", UNSET)

        silent = d.pop("silent", UNSET)

        progress = cls(
            at=at,
            done=done,
            plan=plan,
            rate=rate,
            read=read,
            total=total,
            vm=vm,
            busy=busy,
            dirty=dirty,
            outage=outage,
            reread=reread,
            round_=round_,
            silent=silent,
        )

        return progress
