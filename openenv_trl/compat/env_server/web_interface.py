"""The place of ``openenv.core.env_server.web_interface``: there is no web page, and each name says what to use."""

from openenv_trl.compat._names import names_of

__getattr__ = names_of(__name__)
