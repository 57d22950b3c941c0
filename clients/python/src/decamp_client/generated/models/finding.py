from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union


T = TypeVar("T", bound="Finding")


@_attrs_define
class Finding:
    """
    Attributes:
        blocks (bool):
        code (str):
        text (str):
        column (Union[Unset, int]):
        kind (Union[Unset, str]):
        line (Union[Unset, int]):
        remedy (Union[Unset, str]):
        vm (Union[Unset, str]):
    """

    blocks: bool
    code: str
    text: str
    column: Union[Unset, int] = UNSET
    kind: Union[Unset, str] = UNSET
    line: Union[Unset, int] = UNSET
    remedy: Union[Unset, str] = UNSET
    vm: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        blocks = self.blocks

        code = self.code

        text = self.text

        column = self.column

        kind = self.kind

        line = self.line

        remedy = self.remedy

        vm = self.vm

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "blocks": blocks,
                "code": code,
                "text": text,
            }
        )
        if column is not UNSET:
            field_dict["column"] = column
        if kind is not UNSET:
            field_dict["kind"] = kind
        if line is not UNSET:
            field_dict["line"] = line
        if remedy is not UNSET:
            field_dict["remedy"] = remedy
        if vm is not UNSET:
            field_dict["vm"] = vm

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        blocks = d.pop("blocks")

        code = d.pop("code")

        text = d.pop("text")

        column = d.pop("column", UNSET)

        kind = d.pop("kind", UNSET)

        line = d.pop("line", UNSET)

        remedy = d.pop("remedy", UNSET)

        vm = d.pop("vm", UNSET)

        finding = cls(
            blocks=blocks,
            code=code,
            text=text,
            column=column,
            kind=kind,
            line=line,
            remedy=remedy,
            vm=vm,
        )

        return finding
