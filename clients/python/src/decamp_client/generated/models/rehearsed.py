from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import Union
import datetime

if TYPE_CHECKING:
    from ..models.failure import Failure


T = TypeVar("T", bound="Rehearsed")


@_attrs_define
class Rehearsed:
    """
    Attributes:
        id (str):
        deadline (Union[Unset, int]):
        ended (Union[Unset, datetime.datetime]):
        expect (Union[Unset, str]):
        failure (Union[Unset, Failure]):
        report (Union[Unset, Any]):
        tail (Union[Unset, str]):
        worker (Union[Unset, str]):
    """

    id: str
    deadline: Union[Unset, int] = UNSET
    ended: Union[Unset, datetime.datetime] = UNSET
    expect: Union[Unset, str] = UNSET
    failure: Union[Unset, "Failure"] = UNSET
    report: Union[Unset, Any] = UNSET
    tail: Union[Unset, str] = UNSET
    worker: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        id = self.id

        deadline = self.deadline

        ended: Union[Unset, str] = UNSET
        if not isinstance(self.ended, Unset):
            ended = self.ended.isoformat()

        expect = self.expect

        failure: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.failure, Unset):
            failure = self.failure.to_dict()

        report = self.report

        tail = self.tail

        worker = self.worker

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "id": id,
            }
        )
        if deadline is not UNSET:
            field_dict["deadline"] = deadline
        if ended is not UNSET:
            field_dict["ended"] = ended
        if expect is not UNSET:
            field_dict["expect"] = expect
        if failure is not UNSET:
            field_dict["failure"] = failure
        if report is not UNSET:
            field_dict["report"] = report
        if tail is not UNSET:
            field_dict["tail"] = tail
        if worker is not UNSET:
            field_dict["worker"] = worker

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.failure import Failure

        d = dict(src_dict)
        id = d.pop("id")

        deadline = d.pop("deadline", UNSET)

        _ended = d.pop("ended", UNSET)
        ended: Union[Unset, datetime.datetime]
        if isinstance(_ended, Unset):
            ended = UNSET
        else:
            ended = isoparse(_ended)

        expect = d.pop("expect", UNSET)

        _failure = d.pop("failure", UNSET)
        failure: Union[Unset, Failure]
        if isinstance(_failure, Unset):
            failure = UNSET
        else:
            failure = Failure.from_dict(_failure)

        report = d.pop("report", UNSET)

        tail = d.pop("tail", UNSET)

        worker = d.pop("worker", UNSET)

        rehearsed = cls(
            id=id,
            deadline=deadline,
            ended=ended,
            expect=expect,
            failure=failure,
            report=report,
            tail=tail,
            worker=worker,
        )

        return rehearsed
