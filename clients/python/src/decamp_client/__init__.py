"""Client of the API of decamp serve.

    from decamp_client import Server

    with Server("https://mover:8470", token_file="ci.token", fingerprint="AB:CD:…") as server:
        plan = server.submit(open("plan.yaml").read())
        ended = server.wait(plan.name, timeout=3600)
        print(ended.counts.to_dict())
"""

from .errors import DecampError
from .events import Event
from .server import Server

__all__ = ["DecampError", "Event", "Server"]
