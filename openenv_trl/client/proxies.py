"""Which proxy stands between a client and a server: what the environment variables say, as for other programs.

``wss`` goes by ``wss_proxy``, ``socks_proxy``, ``https_proxy`` or ``all_proxy``; ``ws`` by ``ws_proxy`` and the same,
with ``http_proxy`` too; ``no_proxy`` names hosts that have none. No proxy stands before this machine.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from openenv_trl.client.address import ServerAddress
from openenv_trl.errors import ConfigurationError

_ASKED = {"ws": ("ws", "socks", "https", "http", "all"), "wss": ("wss", "socks", "https", "all")}
_SCHEMES = {
    "http": "http",
    "https": "https",
    "socks4": "socks4",
    "socks4a": "socks4",
    "socks": "socks5",
    "socks5": "socks5",
    "socks5h": "socks5",  # the proxy looks the name up in either case
}


def proxy_for(address: ServerAddress) -> str | None:
    """Return the URL of the proxy to reach a server through, or None.

    Raises:
        ConfigurationError: An environment variable names a proxy of a kind that cannot be used.
    """
    if address.is_loopback:
        return None
    parts = urlsplit(address.websocket_url)
    proxies = getproxies()
    proxy = next((proxies[name] for name in _ASKED[parts.scheme] if proxies.get(name)), None)
    if proxy is None or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    scheme, separator, rest = proxy.partition("://")
    if not separator:
        return f"http://{proxy}"
    known = _SCHEMES.get(scheme.lower())
    if known is None:
        raise ConfigurationError(
            f"The environment names the proxy {scheme}://…, of a kind that cannot be used: use http, https, socks4 or "
            f"socks5, or list {parts.hostname} in no_proxy."
        )
    return f"{known}://{rest}"
