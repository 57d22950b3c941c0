from http import HTTPStatus
from typing import Any, Optional, Union, cast

import httpx

from ...client import AuthenticatedClient, Client
from ...types import Response
from ... import errors

from ...models.problem import Problem
from ...models.rehearsal_in_body import RehearsalInBody


def _get_kwargs(
    plan: str,
    vm: str,
    rehearsal: str,
    *,
    body: RehearsalInBody,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "put",
        "url": "/v1/plans/{plan}/vms/{vm}/rehearsals/{rehearsal}".format(
            plan=plan,
            vm=vm,
            rehearsal=rehearsal,
        ),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(
    *, client: Union[AuthenticatedClient, Client], response: httpx.Response
) -> Optional[Union[Any, Problem]]:
    if response.status_code == 204:
        response_204 = cast(Any, None)
        return response_204

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 401:
        response_401 = Problem.from_dict(response.json())

        return response_401

    if response.status_code == 403:
        response_403 = Problem.from_dict(response.json())

        return response_403

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 408:
        response_408 = Problem.from_dict(response.json())

        return response_408

    if response.status_code == 409:
        response_409 = Problem.from_dict(response.json())

        return response_409

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())

        return response_413

    if response.status_code == 415:
        response_415 = Problem.from_dict(response.json())

        return response_415

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

    if response.status_code == 507:
        response_507 = Problem.from_dict(response.json())

        return response_507

    if client.raise_on_unexpected_status:
        raise errors.UnexpectedStatus(response.status_code, response.content)
    else:
        return None


def _build_response(
    *, client: Union[AuthenticatedClient, Client], response: httpx.Response
) -> Response[Union[Any, Problem]]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    plan: str,
    vm: str,
    rehearsal: str,
    *,
    client: Union[AuthenticatedClient, Client],
    body: RehearsalInBody,
) -> Response[Union[Any, Problem]]:
    """rehearse a VM

     The worker of a warm VM boots it from temporary overlays on its images as soon as no round is
    running. Its name is the caller's choice, and another one each time; the same again changes nothing.

    Args:
        plan (str): its name
        vm (str): its reference, as vm-42
        rehearsal (str): its name
        body (RehearsalInBody):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Union[Any, Problem]]
    """

    kwargs = _get_kwargs(
        plan=plan,
        vm=vm,
        rehearsal=rehearsal,
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    plan: str,
    vm: str,
    rehearsal: str,
    *,
    client: Union[AuthenticatedClient, Client],
    body: RehearsalInBody,
) -> Optional[Union[Any, Problem]]:
    """rehearse a VM

     The worker of a warm VM boots it from temporary overlays on its images as soon as no round is
    running. Its name is the caller's choice, and another one each time; the same again changes nothing.

    Args:
        plan (str): its name
        vm (str): its reference, as vm-42
        rehearsal (str): its name
        body (RehearsalInBody):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Union[Any, Problem]
    """

    return sync_detailed(
        plan=plan,
        vm=vm,
        rehearsal=rehearsal,
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    plan: str,
    vm: str,
    rehearsal: str,
    *,
    client: Union[AuthenticatedClient, Client],
    body: RehearsalInBody,
) -> Response[Union[Any, Problem]]:
    """rehearse a VM

     The worker of a warm VM boots it from temporary overlays on its images as soon as no round is
    running. Its name is the caller's choice, and another one each time; the same again changes nothing.

    Args:
        plan (str): its name
        vm (str): its reference, as vm-42
        rehearsal (str): its name
        body (RehearsalInBody):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Union[Any, Problem]]
    """

    kwargs = _get_kwargs(
        plan=plan,
        vm=vm,
        rehearsal=rehearsal,
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    plan: str,
    vm: str,
    rehearsal: str,
    *,
    client: Union[AuthenticatedClient, Client],
    body: RehearsalInBody,
) -> Optional[Union[Any, Problem]]:
    """rehearse a VM

     The worker of a warm VM boots it from temporary overlays on its images as soon as no round is
    running. Its name is the caller's choice, and another one each time; the same again changes nothing.

    Args:
        plan (str): its name
        vm (str): its reference, as vm-42
        rehearsal (str): its name
        body (RehearsalInBody):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Union[Any, Problem]
    """

    return (
        await asyncio_detailed(
            plan=plan,
            vm=vm,
            rehearsal=rehearsal,
            client=client,
            body=body,
        )
    ).parsed
