from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import Union
import datetime

if TYPE_CHECKING:
    from ..models.plan_counts import PlanCounts
    from ..models.failure import Failure


T = TypeVar("T", bound="Plan")


@_attrs_define
class Plan:
    """
    Attributes:
        counts (PlanCounts):
        created (datetime.datetime):
        name (str):
        rev (int):
        state (str):
        by (Union[Unset, str]):
        command (Union[Unset, str]):
        ended (Union[Unset, datetime.datetime]):
        failure (Union[Unset, Failure]):
        folder (Union[Unset, str]):
        listed (Union[Unset, datetime.datetime]):
        role (Union[Unset, str]):
        text (Union[Unset, str]):
    """

    counts: "PlanCounts"
    created: datetime.datetime
    name: str
    rev: int
    state: str
    by: Union[Unset, str] = UNSET
    command: Union[Unset, str] = UNSET
    ended: Union[Unset, datetime.datetime] = UNSET
    failure: Union[Unset, "Failure"] = UNSET
    folder: Union[Unset, str] = UNSET
    listed: Union[Unset, datetime.datetime] = UNSET
    role: Union[Unset, str] = UNSET
    text: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        counts = self.counts.to_dict()

        created = self.created.isoformat()

        name = self.name

        rev = self.rev

        state = self.state

        by = self.by

        command = self.command

        ended: Union[Unset, str] = UNSET
        if not isinstance(self.ended, Unset):
            ended = self.ended.isoformat()

        failure: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.failure, Unset):
            failure = self.failure.to_dict()

        folder = self.folder

        listed: Union[Unset, str] = UNSET
        if not isinstance(self.listed, Unset):
            listed = self.listed.isoformat()

        role = self.role

        text = self.text

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "counts": counts,
                "created": created,
                "name": name,
                "rev": rev,
                "state": state,
            }
        )
        if by is not UNSET:
            field_dict["by"] = by
        if command is not UNSET:
            field_dict["command"] = command
        if ended is not UNSET:
            field_dict["ended"] = ended
        if failure is not UNSET:
            field_dict["failure"] = failure
        if folder is not UNSET:
            field_dict["folder"] = folder
        if listed is not UNSET:
            field_dict["listed"] = listed
        if role is not UNSET:
            field_dict["role"] = role
        if text is not UNSET:
            field_dict["text"] = text

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plan_counts import PlanCounts
        from ..models.failure import Failure

        d = dict(src_dict)
        counts = PlanCounts.from_dict(d.pop("counts"))

        created = isoparse(d.pop("created"))

        name = d.pop("name")

        rev = d.pop("rev")

        state = d.pop("state")

        by = d.pop("by", UNSET)

        command = d.pop("command", UNSET)

        _ended = d.pop("ended", UNSET)
        ended: Union[Unset, datetime.datetime]
        if isinstance(_ended, Unset):
            ended = UNSET
        else:
            ended = isoparse(_ended)

        _failure = d.pop("failure", UNSET)
        failure: Union[Unset, Failure]
        if isinstance(_failure, Unset):
            failure = UNSET
        else:
            failure = Failure.from_dict(_failure)

        folder = d.pop("folder", UNSET)

        _listed = d.pop("listed", UNSET)
        listed: Union[Unset, datetime.datetime]
        if isinstance(_listed, Unset):
            listed = UNSET
        else:
            listed = isoparse(_listed)

        role = d.pop("role", UNSET)

        text = d.pop("text", UNSET)

        plan = cls(
            counts=counts,
            created=created,
            name=name,
            rev=rev,
            state=state,
            by=by,
            command=command,
            ended=ended,
            failure=failure,
            folder=folder,
            listed=listed,
            role=role,
            text=text,
        )

        return plan
