"""The place of ``openenv.core.env_server.web_interface``: the debug page is this package's own.

`create_web_interface_app` is there; each name of the public page's inner parts says what to use.
"""

from openenv_trl.compat._names import names_of

__getattr__ = names_of(__name__)
