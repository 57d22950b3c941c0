from collections.abc import Mapping
from typing import Any, TypeVar, TYPE_CHECKING

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from dateutil.parser import isoparse
from typing import Union
import datetime

if TYPE_CHECKING:
    from ..models.worker_offers import WorkerOffers


T = TypeVar("T", bound="Worker")


@_attrs_define
class Worker:
    """
    Attributes:
        alive (bool):
        epoch (int):
        name (str):
        offers (WorkerOffers):
        rev (int):
        until (datetime.datetime):
        version (str):
        vms (int):
        drains (Union[Unset, bool]):
    """

    alive: bool
    epoch: int
    name: str
    offers: "WorkerOffers"
    rev: int
    until: datetime.datetime
    version: str
    vms: int
    drains: Union[Unset, bool] = UNSET

    def to_dict(self) -> dict[str, Any]:
        alive = self.alive

        epoch = self.epoch

        name = self.name

        offers = self.offers.to_dict()

        rev = self.rev

        until = self.until.isoformat()

        version = self.version

        vms = self.vms

        drains = self.drains

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "alive": alive,
                "epoch": epoch,
                "name": name,
                "offers": offers,
                "rev": rev,
                "until": until,
                "version": version,
                "vms": vms,
            }
        )
        if drains is not UNSET:
            field_dict["drains"] = drains

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.worker_offers import WorkerOffers

        d = dict(src_dict)
        alive = d.pop("alive")

        epoch = d.pop("epoch")

        name = d.pop("name")

        offers = WorkerOffers.from_dict(d.pop("offers"))

        rev = d.pop("rev")

        until = isoparse(d.pop("until"))

        version = d.pop("version")

        vms = d.pop("vms")

        drains = d.pop("drains", UNSET)

        worker = cls(
            alive=alive,
            epoch=epoch,
            name=name,
            offers=offers,
            rev=rev,
            until=until,
            version=version,
            vms=vms,
            drains=drains,
        )

        return worker
