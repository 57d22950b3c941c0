from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import Union

if TYPE_CHECKING:
    from ..models.notification_count import NotificationCount


T = TypeVar("T", bound="ListBodyNotificationCount")


@_attrs_define
class ListBodyNotificationCount:
    """
    Attributes:
        items (list['NotificationCount']):
        next_ (Union[Unset, int]): cursor of the next page (the audit trail: of earlier entries); 0 or missing if this
            is the last page
    """

    items: list["NotificationCount"]
    next_: Union[Unset, int] = UNSET

    def to_dict(self) -> dict[str, Any]:
        items = []
        for items_item_data in self.items:
            items_item = items_item_data.to_dict()
            items.append(items_item)

        next_ = self.next_

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "items": items,
            }
        )
        if next_ is not UNSET:
            field_dict["next"] = next_

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.notification_count import NotificationCount

        d = dict(src_dict)
        items = []
        _items = d.pop("items")
        for items_item_data in _items:
            items_item = NotificationCount.from_dict(items_item_data)

            items.append(items_item)

        next_ = d.pop("next", UNSET)

        list_body_notification_count = cls(
            items=items,
            next_=next_,
        )

        return list_body_notification_count
