"""Its server."""

from openenv.core.env_server import create_fastapi_app

from ..models import TextAction, TextObservation
from .text_environment import TextEnvironment

app = create_fastapi_app(TextEnvironment, TextAction, TextObservation, env_name="ported_text")
