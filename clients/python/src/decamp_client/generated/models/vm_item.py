from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import cast
from typing import Union
import datetime

if TYPE_CHECKING:
    from ..models.rehearsal import Rehearsal
    from ..models.failure import Failure
    from ..models.progress import Progress


T = TypeVar("T", bound="VmItem")


@_attrs_define
class VmItem:
    """
    Attributes:
        bytes_ (int):
        datastore (str):
        disks (int):
        epoch (int):
        host (str):
        name (str):
        plan (str):
        rev (int):
        runs (Union[None, list[str]]):
        seq (int):
        source (str):
        state (str):
        to (Union[None, list[str]]):
        vm (str):
        attempts (Union[Unset, int]):
        began (Union[Unset, datetime.datetime]):
        column (Union[Unset, int]):
        command (Union[Unset, str]):
        ended (Union[Unset, datetime.datetime]):
        expected (Union[Unset, int]):
        failure (Union[Unset, Failure]):
        granted (Union[Unset, bool]):
        line (Union[Unset, int]):
        not_before (Union[Unset, datetime.datetime]):
        priority (Union[Unset, int]):
        progress (Union[Unset, Progress]):
        reason (Union[Unset, str]): reason of its wait for a transfer slot
        rehearse (Union[Unset, Rehearsal]):
        requested (Union[Unset, str]):
        since (Union[Unset, datetime.datetime]):
        spec (Union[Unset, Any]):
        step (Union[Unset, str]):
        storage (Union[None, Unset, list[str]]):
        wait_reason (Union[Unset, str]):
        warm (Union[Unset, bool]):
        worker (Union[Unset, str]):
    """

    bytes_: int
    datastore: str
    disks: int
    epoch: int
    host: str
    name: str
    plan: str
    rev: int
    runs: Union[None, list[str]]
    seq: int
    source: str
    state: str
    to: Union[None, list[str]]
    vm: str
    attempts: Union[Unset, int] = UNSET
    began: Union[Unset, datetime.datetime] = UNSET
    column: Union[Unset, int] = UNSET
    command: Union[Unset, str] = UNSET
    ended: Union[Unset, datetime.datetime] = UNSET
    expected: Union[Unset, int] = UNSET
    failure: Union[Unset, "Failure"] = UNSET
    granted: Union[Unset, bool] = UNSET
    line: Union[Unset, int] = UNSET
    not_before: Union[Unset, datetime.datetime] = UNSET
    priority: Union[Unset, int] = UNSET
    progress: Union[Unset, "Progress"] = UNSET
    reason: Union[Unset, str] = UNSET
    rehearse: Union[Unset, "Rehearsal"] = UNSET
    requested: Union[Unset, str] = UNSET
    since: Union[Unset, datetime.datetime] = UNSET
    spec: Union[Unset, Any] = UNSET
    step: Union[Unset, str] = UNSET
    storage: Union[None, Unset, list[str]] = UNSET
    wait_reason: Union[Unset, str] = UNSET
    warm: Union[Unset, bool] = UNSET
    worker: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        bytes_ = self.bytes_

        datastore = self.datastore

        disks = self.disks

        epoch = self.epoch

        host = self.host

        name = self.name

        plan = self.plan

        rev = self.rev

        runs: Union[None, list[str]]
        if isinstance(self.runs, list):
            runs = self.runs

        else:
            runs = self.runs

        seq = self.seq

        source = self.source

        state = self.state

        to: Union[None, list[str]]
        if isinstance(self.to, list):
            to = self.to

        else:
            to = self.to

        vm = self.vm

        attempts = self.attempts

        began: Union[Unset, str] = UNSET
        if not isinstance(self.began, Unset):
            began = self.began.isoformat()

        column = self.column

        command = self.command

        ended: Union[Unset, str] = UNSET
        if not isinstance(self.ended, Unset):
            ended = self.ended.isoformat()

        expected = self.expected

        failure: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.failure, Unset):
            failure = self.failure.to_dict()

        granted = self.granted

        line = self.line

        not_before: Union[Unset, str] = UNSET
        if not isinstance(self.not_before, Unset):
            not_before = self.not_before.isoformat()

        priority = self.priority

        progress: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.progress, Unset):
            progress = self.progress.to_dict()

        reason = self.reason

        rehearse: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.rehearse, Unset):
            rehearse = self.rehearse.to_dict()

        requested = self.requested

        since: Union[Unset, str] = UNSET
        if not isinstance(self.since, Unset):
            since = self.since.isoformat()

        spec = self.spec

        step = self.step

        storage: Union[None, Unset, list[str]]
        if isinstance(self.storage, Unset):
            storage = UNSET
        elif isinstance(self.storage, list):
            storage = self.storage

        else:
            storage = self.storage

        wait_reason = self.wait_reason

        warm = self.warm

        worker = self.worker

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "bytes": bytes_,
                "datastore": datastore,
                "disks": disks,
                "epoch": epoch,
                "host": host,
                "name": name,
                "plan": plan,
                "rev": rev,
                "runs": runs,
                "seq": seq,
                "source": source,
                "state": state,
                "to": to,
                "vm": vm,
            }
        )
        if attempts is not UNSET:
            field_dict["attempts"] = attempts
        if began is not UNSET:
            field_dict["began"] = began
        if column is not UNSET:
            field_dict["column"] = column
        if command is not UNSET:
            field_dict["command"] = command
        if ended is not UNSET:
            field_dict["ended"] = ended
        if expected is not UNSET:
            field_dict["expected"] = expected
        if failure is not UNSET:
            field_dict["failure"] = failure
        if granted is not UNSET:
            field_dict["granted"] = granted
        if line is not UNSET:
            field_dict["line"] = line
        if not_before is not UNSET:
            field_dict["notBefore"] = not_before
        if priority is not UNSET:
            field_dict["priority"] = priority
        if progress is not UNSET:
            field_dict["progress"] = progress
        if reason is not UNSET:
            field_dict["reason"] = reason
        if rehearse is not UNSET:
            field_dict["rehearse"] = rehearse
        if requested is not UNSET:
            field_dict["requested"] = requested
        if since is not UNSET:
            field_dict["since"] = since
        if spec is not UNSET:
            field_dict["spec"] = spec
        if step is not UNSET:
            field_dict["step"] = step
        if storage is not UNSET:
            field_dict["storage"] = storage
        if wait_reason is not UNSET:
            field_dict["waitReason"] = wait_reason
        if warm is not UNSET:
            field_dict["warm"] = warm
        if worker is not UNSET:
            field_dict["worker"] = worker

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.rehearsal import Rehearsal
        from ..models.failure import Failure
        from ..models.progress import Progress

        d = dict(src_dict)
        bytes_ = d.pop("bytes")

        datastore = d.pop("datastore")

        disks = d.pop("disks")

        epoch = d.pop("epoch")

        host = d.pop("host")

        name = d.pop("name")

        plan = d.pop("plan")

        rev = d.pop("rev")

        def _parse_runs(data: object) -> Union[None, list[str]]:
            if data is None:
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                runs_type_0 = cast(list[str], data)

                return runs_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, list[str]], data)

        runs = _parse_runs(d.pop("runs"))

        seq = d.pop("seq")

        source = d.pop("source")

        state = d.pop("state")

        def _parse_to(data: object) -> Union[None, list[str]]:
            if data is None:
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                to_type_0 = cast(list[str], data)

                return to_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, list[str]], data)

        to = _parse_to(d.pop("to"))

        vm = d.pop("vm")

        attempts = d.pop("attempts", UNSET)

        _began = d.pop("began", UNSET)
        began: Union[Unset, datetime.datetime]
        if isinstance(_began, Unset):
            began = UNSET
        else:
            began = isoparse(_began)

        column = d.pop("column", UNSET)

        command = d.pop("command", UNSET)

        _ended = d.pop("ended", UNSET)
        ended: Union[Unset, datetime.datetime]
        if isinstance(_ended, Unset):
            ended = UNSET
        else:
            ended = isoparse(_ended)

        expected = d.pop("expected", UNSET)

        _failure = d.pop("failure", UNSET)
        failure: Union[Unset, Failure]
        if isinstance(_failure, Unset):
            failure = UNSET
        else:
            failure = Failure.from_dict(_failure)

        granted = d.pop("granted", UNSET)

        line = d.pop("line", UNSET)

        _not_before = d.pop("notBefore", UNSET)
        not_before: Union[Unset, datetime.datetime]
        if isinstance(_not_before, Unset):
            not_before = UNSET
        else:
            not_before = isoparse(_not_before)

        priority = d.pop("priority", UNSET)

        _progress = d.pop("progress", UNSET)
        progress: Union[Unset, Progress]
        if isinstance(_progress, Unset):
            progress = UNSET
        else:
            progress = Progress.from_dict(_progress)

        reason = d.pop("reason", UNSET)

        _rehearse = d.pop("rehearse", UNSET)
        rehearse: Union[Unset, Rehearsal]
        if isinstance(_rehearse, Unset):
            rehearse = UNSET
        else:
            rehearse = Rehearsal.from_dict(_rehearse)

        requested = d.pop("requested", UNSET)

        _since = d.pop("since", UNSET)
        since: Union[Unset, datetime.datetime]
        if isinstance(_since, Unset):
            since = UNSET
        else:
            since = isoparse(_since)

        spec = d.pop("spec", UNSET)

        step = d.pop("step", UNSET)

        def _parse_storage(data: object) -> Union[None, Unset, list[str]]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                storage_type_0 = cast(list[str], data)

                return storage_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, list[str]], data)

        storage = _parse_storage(d.pop("storage", UNSET))

        wait_reason = d.pop("waitReason", UNSET)

        warm = d.pop("warm", UNSET)

        worker = d.pop("worker", UNSET)

        vm_item = cls(
            bytes_=bytes_,
            datastore=datastore,
            disks=disks,
            epoch=epoch,
            host=host,
            name=name,
            plan=plan,
            rev=rev,
            runs=runs,
            seq=seq,
            source=source,
            state=state,
            to=to,
            vm=vm,
            attempts=attempts,
            began=began,
            column=column,
            command=command,
            ended=ended,
            expected=expected,
            failure=failure,
            granted=granted,
            line=line,
            not_before=not_before,
            priority=priority,
            progress=progress,
            reason=reason,
            rehearse=rehearse,
            requested=requested,
            since=since,
            spec=spec,
            step=step,
            storage=storage,
            wait_reason=wait_reason,
            warm=warm,
            worker=worker,
        )

        return vm_item
