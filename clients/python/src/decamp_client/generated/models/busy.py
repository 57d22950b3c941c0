from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define


T = TypeVar("T", bound="Busy")


@_attrs_define
class Busy:
    """
    Attributes:
        budget (float):
        processor (float):
        source (float):
        target (float):
    """

    budget: float
    processor: float
    source: float
    target: float

    def to_dict(self) -> dict[str, Any]:
        budget = self.budget

        processor = self.processor

        source = self.source

        target = self.target

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "budget": budget,
                "processor": processor,
                "source": source,
                "target": target,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        budget = d.pop("budget")

        processor = d.pop("processor")

        source = d.pop("source")

        target = d.pop("target")

        busy = cls(
            budget=budget,
            processor=processor,
            source=source,
            target=target,
        )

        return busy
