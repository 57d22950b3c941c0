from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union


T = TypeVar("T", bound="Failure")


@_attrs_define
class Failure:
    """
    Attributes:
        kind (str):
        text (str):
        hint (Union[Unset, str]):
        local (Union[Unset, bool]):
    """

    kind: str
    text: str
    hint: Union[Unset, str] = UNSET
    local: Union[Unset, bool] = UNSET

    def to_dict(self) -> dict[str, Any]:
        kind = self.kind

        text = self.text

        hint = self.hint

        local = self.local

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "kind": kind,
                "text": text,
            }
        )
        if hint is not UNSET:
            field_dict["hint"] = hint
        if local is not UNSET:
            field_dict["local"] = local

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        kind = d.pop("kind")

        text = d.pop("text")

        hint = d.pop("hint", UNSET)

        local = d.pop("local", UNSET)

        failure = cls(
            kind=kind,
            text=text,
            hint=hint,
            local=local,
        )

        return failure
