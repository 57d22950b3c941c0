from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from ..models.problem_kind import ProblemKind
from typing import Union

if TYPE_CHECKING:
    from ..models.finding import Finding
    from ..models.error_detail import ErrorDetail


T = TypeVar("T", bound="Problem")


@_attrs_define
class Problem:
    """
    Attributes:
        detail (str): what happened
        kind (ProblemKind): kind of the error, for programs
        status (int):
        title (str):
        type_ (str): about:blank: the status is the type
        errors (Union[Unset, list['ErrorDetail']]): of a request: each with its place
        findings (Union[Unset, list['Finding']]): of a plan: each with its line
        remedy (Union[Unset, str]): what to do, for people
    """

    detail: str
    kind: ProblemKind
    status: int
    title: str
    type_: str
    errors: Union[Unset, list["ErrorDetail"]] = UNSET
    findings: Union[Unset, list["Finding"]] = UNSET
    remedy: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        detail = self.detail

        kind = self.kind.value

        status = self.status

        title = self.title

        type_ = self.type_

        errors: Union[Unset, list[dict[str, Any]]] = UNSET
        if not isinstance(self.errors, Unset):
            errors = []
            for errors_item_data in self.errors:
                errors_item = errors_item_data.to_dict()
                errors.append(errors_item)

        findings: Union[Unset, list[dict[str, Any]]] = UNSET
        if not isinstance(self.findings, Unset):
            findings = []
            for findings_item_data in self.findings:
                findings_item = findings_item_data.to_dict()
                findings.append(findings_item)

        remedy = self.remedy

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "detail": detail,
                "kind": kind,
                "status": status,
                "title": title,
                "type": type_,
            }
        )
        if errors is not UNSET:
            field_dict["errors"] = errors
        if findings is not UNSET:
            field_dict["findings"] = findings
        if remedy is not UNSET:
            field_dict["remedy"] = remedy

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.finding import Finding
        from ..models.error_detail import ErrorDetail

        d = dict(src_dict)
        detail = d.pop("detail")

        kind = ProblemKind(d.pop("kind"))

        status = d.pop("status")

        title = d.pop("title")

        type_ = d.pop("type")

        errors = []
        _errors = d.pop("errors", UNSET)
        for errors_item_data in _errors or []:
            errors_item = ErrorDetail.from_dict(errors_item_data)

            errors.append(errors_item)

        findings = []
        _findings = d.pop("findings", UNSET)
        for findings_item_data in _findings or []:
            findings_item = Finding.from_dict(findings_item_data)

            findings.append(findings_item)

        remedy = d.pop("remedy", UNSET)

        problem = cls(
            detail=detail,
            kind=kind,
            status=status,
            title=title,
            type_=type_,
            errors=errors,
            findings=findings,
            remedy=remedy,
        )

        return problem
