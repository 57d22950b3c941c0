from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union


T = TypeVar("T", bound="PlanCheck")


@_attrs_define
class PlanCheck:
    """
    Attributes:
        diff (str): unified diff from the text of that plan to the checked text; empty if they are equal
        name (str): name of the plan
        state (Union[Unset, str]): state of the submitted plan with this name; missing if no plan has it
    """

    diff: str
    name: str
    state: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        diff = self.diff

        name = self.name

        state = self.state

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "diff": diff,
                "name": name,
            }
        )
        if state is not UNSET:
            field_dict["state"] = state

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        diff = d.pop("diff")

        name = d.pop("name")

        state = d.pop("state", UNSET)

        plan_check = cls(
            diff=diff,
            name=name,
            state=state,
        )

        return plan_check
