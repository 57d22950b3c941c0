from http import HTTPStatus
from typing import Any, Optional, Union

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.list_body_vm_item import ListBodyVmItem
from ...models.list_v_ms_state_item import ListVMsStateItem
from ...models.problem import Problem
from ...types import Unset


def _get_kwargs(
    plan: str,
    *,
    state: Union[Unset, list[ListVMsStateItem]] = UNSET,
    worker: Union[Unset, str] = UNSET,
    after: Union[Unset, int] = UNSET,
    limit: Union[Unset, int] = 100,
) -> dict[str, Any]:
    params: dict[str, Any] = {}

    json_state: Union[Unset, list[str]] = UNSET
    if not isinstance(state, Unset):
        json_state = []
        for state_item_data in state:
            state_item = state_item_data.value
            json_state.append(state_item)

    params["state"] = json_state

    params["worker"] = worker

    params["after"] = after

    params["limit"] = limit

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/plans/{plan}/vms".format(
            plan=plan,
        ),
        "params": params,
    }

    return _kwargs


def _parse_response(
    *, client: Union[AuthenticatedClient, Client], response: httpx.Response
) -> Optional[Union[ListBodyVmItem, Problem]]:
    if response.status_code == 200:
        response_200 = ListBodyVmItem.from_dict(response.json())

        return response_200

    if response.status_code == 401:
        response_401 = Problem.from_dict(response.json())

        return response_401

    if response.status_code == 403:
        response_403 = Problem.from_dict(response.json())

        return response_403

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    if response.status_code == 429:
        response_429 = Problem.from_dict(response.json())

        return response_429

    if response.status_code == 500:
        response_500 = Problem.from_dict(response.json())

        return response_500

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())

        return response_503

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(
    *, client: Union[AuthenticatedClient, Client], response: httpx.Response
) -> Response[Union[ListBodyVmItem, Problem]]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    plan: str,
    *,
    client: Union[AuthenticatedClient, Client],
    state: Union[Unset, list[ListVMsStateItem]] = UNSET,
    worker: Union[Unset, str] = UNSET,
    after: Union[Unset, int] = UNSET,
    limit: Union[Unset, int] = 100,
) -> Response[Union[ListBodyVmItem, Problem]]:
    """list the VMs of a plan

     In the plan's order, a page at a time: next is the after of the page that follows.

    Args:
        plan (str): its name
        state (Union[Unset, list[ListVMsStateItem]]): only VMs in these states, separated by
            commas
        worker (Union[Unset, str]): only VMs that this worker executes, or executed last
        after (Union[Unset, int]): the seq of the last VM of the page before
        limit (Union[Unset, int]):  Default: 100.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Union[ListBodyVmItem, Problem]]
    """

    kwargs = _get_kwargs(
        plan=plan,
        state=state,
        worker=worker,
        after=after,
        limit=limit,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    plan: str,
    *,
    client: Union[AuthenticatedClient, Client],
    state: Union[Unset, list[ListVMsStateItem]] = UNSET,
    worker: Union[Unset, str] = UNSET,
    after: Union[Unset, int] = UNSET,
    limit: Union[Unset, int] = 100,
) -> Optional[Union[ListBodyVmItem, Problem]]:
    """list the VMs of a plan

     In the plan's order, a page at a time: next is the after of the page that follows.

    Args:
        plan (str): its name
        state (Union[Unset, list[ListVMsStateItem]]): only VMs in these states, separated by
            commas
        worker (Union[Unset, str]): only VMs that this worker executes, or executed last
        after (Union[Unset, int]): the seq of the last VM of the page before
        limit (Union[Unset, int]):  Default: 100.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Union[ListBodyVmItem, Problem]
    """

    return sync_detailed(
        plan=plan,
        client=client,
        state=state,
        worker=worker,
        after=after,
        limit=limit,
    ).parsed


async def asyncio_detailed(
    plan: str,
    *,
    client: Union[AuthenticatedClient, Client],
    state: Union[Unset, list[ListVMsStateItem]] = UNSET,
    worker: Union[Unset, str] = UNSET,
    after: Union[Unset, int] = UNSET,
    limit: Union[Unset, int] = 100,
) -> Response[Union[ListBodyVmItem, Problem]]:
    """list the VMs of a plan

     In the plan's order, a page at a time: next is the after of the page that follows.

    Args:
        plan (str): its name
        state (Union[Unset, list[ListVMsStateItem]]): only VMs in these states, separated by
            commas
        worker (Union[Unset, str]): only VMs that this worker executes, or executed last
        after (Union[Unset, int]): the seq of the last VM of the page before
        limit (Union[Unset, int]):  Default: 100.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Union[ListBodyVmItem, Problem]]
    """

    kwargs = _get_kwargs(
        plan=plan,
        state=state,
        worker=worker,
        after=after,
        limit=limit,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    plan: str,
    *,
    client: Union[AuthenticatedClient, Client],
    state: Union[Unset, list[ListVMsStateItem]] = UNSET,
    worker: Union[Unset, str] = UNSET,
    after: Union[Unset, int] = UNSET,
    limit: Union[Unset, int] = 100,
) -> Optional[Union[ListBodyVmItem, Problem]]:
    """list the VMs of a plan

     In the plan's order, a page at a time: next is the after of the page that follows.

    Args:
        plan (str): its name
        state (Union[Unset, list[ListVMsStateItem]]): only VMs in these states, separated by
            commas
        worker (Union[Unset, str]): only VMs that this worker executes, or executed last
        after (Union[Unset, int]): the seq of the last VM of the page before
        limit (Union[Unset, int]):  Default: 100.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Union[ListBodyVmItem, Problem]
    """

    return (
        await asyncio_detailed(
            plan=plan,
            client=client,
            state=state,
            worker=worker,
            after=after,
            limit=limit,
        )
    ).parsed
