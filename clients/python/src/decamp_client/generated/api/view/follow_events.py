from http import HTTPStatus
from typing import Any, Optional, Union

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response, UNSET
from ... import errors

from ...models.problem import Problem
from ...types import Unset


def _get_kwargs(
    *,
    plan: Union[Unset, str] = UNSET,
    since: Union[Unset, int] = -1,
    last_event_id: Union[Unset, str] = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(last_event_id, Unset):
        headers["Last-Event-ID"] = last_event_id

    params: dict[str, Any] = {}

    params["plan"] = plan

    params["since"] = since

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/events",
        "params": params,
    }

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: Union[AuthenticatedClient, Client], response: httpx.Response
) -> Optional[Union[Problem, str]]:
    if response.status_code == 200:
        response_200 = response.text
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
) -> Response[Union[Problem, str]]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: Union[AuthenticatedClient, Client],
    plan: Union[Unset, str] = UNSET,
    since: Union[Unset, int] = -1,
    last_event_id: Union[Unset, str] = UNSET,
) -> Response[Union[Problem, str]]:
    """follow the events

     An endless stream. Rows are sent whole in their current state, so receiving one twice is harmless.

    Args:
        plan (Union[Unset, str]): events of this plan; empty: all plans
        since (Union[Unset, int]): the revision to continue from; 0: all rows; -1: from now on
            Default: -1.
        last_event_id (Union[Unset, str]): sent by browsers that reconnect; it takes precedence
            over since

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Union[Problem, str]]
    """

    kwargs = _get_kwargs(
        plan=plan,
        since=since,
        last_event_id=last_event_id,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: Union[AuthenticatedClient, Client],
    plan: Union[Unset, str] = UNSET,
    since: Union[Unset, int] = -1,
    last_event_id: Union[Unset, str] = UNSET,
) -> Optional[Union[Problem, str]]:
    """follow the events

     An endless stream. Rows are sent whole in their current state, so receiving one twice is harmless.

    Args:
        plan (Union[Unset, str]): events of this plan; empty: all plans
        since (Union[Unset, int]): the revision to continue from; 0: all rows; -1: from now on
            Default: -1.
        last_event_id (Union[Unset, str]): sent by browsers that reconnect; it takes precedence
            over since

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Union[Problem, str]
    """

    return sync_detailed(
        client=client,
        plan=plan,
        since=since,
        last_event_id=last_event_id,
    ).parsed


async def asyncio_detailed(
    *,
    client: Union[AuthenticatedClient, Client],
    plan: Union[Unset, str] = UNSET,
    since: Union[Unset, int] = -1,
    last_event_id: Union[Unset, str] = UNSET,
) -> Response[Union[Problem, str]]:
    """follow the events

     An endless stream. Rows are sent whole in their current state, so receiving one twice is harmless.

    Args:
        plan (Union[Unset, str]): events of this plan; empty: all plans
        since (Union[Unset, int]): the revision to continue from; 0: all rows; -1: from now on
            Default: -1.
        last_event_id (Union[Unset, str]): sent by browsers that reconnect; it takes precedence
            over since

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Union[Problem, str]]
    """

    kwargs = _get_kwargs(
        plan=plan,
        since=since,
        last_event_id=last_event_id,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: Union[AuthenticatedClient, Client],
    plan: Union[Unset, str] = UNSET,
    since: Union[Unset, int] = -1,
    last_event_id: Union[Unset, str] = UNSET,
) -> Optional[Union[Problem, str]]:
    """follow the events

     An endless stream. Rows are sent whole in their current state, so receiving one twice is harmless.

    Args:
        plan (Union[Unset, str]): events of this plan; empty: all plans
        since (Union[Unset, int]): the revision to continue from; 0: all rows; -1: from now on
            Default: -1.
        last_event_id (Union[Unset, str]): sent by browsers that reconnect; it takes precedence
            over since

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Union[Problem, str]
    """

    return (
        await asyncio_detailed(
            client=client,
            plan=plan,
            since=since,
            last_event_id=last_event_id,
        )
    ).parsed
