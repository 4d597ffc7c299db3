"""ApiVersions (18): the APIs that a listener offers, and the features that are switched on.

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | client software name and version; tagged features; flexible, except the response header |
| 4 | lists features whose minimum is 0 |

A version above 4 or below 0 is answered in the layout of v0, with UNSUPPORTED_VERSION and the
versions that we serve. A newer client can then ask again (KafkaApis.handleApiVersionsRequest).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.exchange import NO_THROTTLE_MS
from groupkeeper.protocol.codec import write_response
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

KEY = ApiKey.API_VERSIONS
MAX_VERSION = API_BY_KEY[KEY].max_version

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The form of a valid name, or version, of a client's software (KIP-511,
ApiVersionsRequest.isValid)."""


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once with the APIs and features that the listener offers now. The name and version
    of the client's software are kept in its session. If one of them is malformed, answer
    INVALID_REQUEST.
    """
    request = exchange.read(services)
    version = exchange.version
    valid = version < 3 or (
        _SOFTWARE.fullmatch(request.client_software_name) is not None
        and _SOFTWARE.fullmatch(request.client_software_version) is not None
    )
    exchange.error = ErrorCode.NONE if valid else ErrorCode.INVALID_REQUEST
    if valid:
        if version >= 3:
            name, its_version = request.client_software_name, request.client_software_version
            exchange.channel.session.runs(name, its_version)
        exchange.send(exchange.write(error_code=exchange.error, **services.offer().values(version)))
    else:
        exchange.send(exchange.write(error_code=exchange.error, api_keys=()))


def handle_unsupported(exchange: Exchange, _services: Services) -> None:
    """Answer a version that we do not serve with UNSUPPORTED_VERSION and the versions that we
    serve.
    """
    exchange.error = ErrorCode.UNSUPPORTED_VERSION
    api = API_BY_KEY[KEY]
    own = Row(api_key=KEY, min_version=api.advertised_min, max_version=api.max_version)
    values = {"error_code": exchange.error, "api_keys": [own]}
    reply = write_response(KEY, 0, exchange.correlation_id, NO_THROTTLE_MS, values)
    exchange.send(reply)
