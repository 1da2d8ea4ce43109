"""The credential broker: a loopback reverse proxy for one fixed upstream, which holds the key that the worker does not.

`desk.py` decides at the start of a run which keys stay here, `process.py` is the process, `proxy.py` relays in it;
`requests.py`, `scrubbing.py` and `upstream.py` are what it decides, without any input or output.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pincer_trace.broker.desk import Desk
    from pincer_trace.profile.brokers import Broker


def opener(
    environment: Mapping[bytes, bytes], passed: Sequence[str], desks: list[Desk]
) -> Callable[[Broker], int | None]:
    """Where a broker of a run will listen. The first that may have a key to keep puts the run's desk into `desks`.

    `passed` are the variables that the command is to have as they are.
    """

    def port_of(broker: Broker) -> int | None:
        if not broker.may_apply(environment):
            return None
        if not desks:
            from pincer_trace.broker.desk import Desk

            desks.append(Desk(environment, passed))
        return desks[0].open(broker)

    return port_of
