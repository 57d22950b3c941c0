from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

from typing import cast
from typing import Union


T = TypeVar("T", bound="CredentialItem")


@_attrs_define
class CredentialItem:
    """
    Attributes:
        name (str): name for credentials: {name: NAME} in a plan
        fingerprint (Union[Unset, str]): SHA-256 of the certificate of the source
        hosts (Union[Unset, list[str]]): hosts of a credential for SSH
        url (Union[Unset, str]): source that the credential is bound to; missing if it is for SSH
    """

    name: str
    fingerprint: Union[Unset, str] = UNSET
    hosts: Union[Unset, list[str]] = UNSET
    url: Union[Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        fingerprint = self.fingerprint

        hosts: Union[Unset, list[str]] = UNSET
        if not isinstance(self.hosts, Unset):
            hosts = self.hosts

        url = self.url

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "name": name,
            }
        )
        if fingerprint is not UNSET:
            field_dict["fingerprint"] = fingerprint
        if hosts is not UNSET:
            field_dict["hosts"] = hosts
        if url is not UNSET:
            field_dict["url"] = url

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        fingerprint = d.pop("fingerprint", UNSET)

        hosts = cast(list[str], d.pop("hosts", UNSET))

        url = d.pop("url", UNSET)

        credential_item = cls(
            name=name,
            fingerprint=fingerprint,
            hosts=hosts,
            url=url,
        )

        return credential_item
