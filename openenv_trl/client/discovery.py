"""Which environment packages are installed here: ours (``*_env``) and those of the public package (``openenv-*``).

Nothing is imported to find them: names and versions come from the installed packages' metadata, the rest from the
``openenv.yaml`` in each. What a manifest does not say is inferred from its name, as the public package does
(``echo_env``: ``EchoEnv``, ``EchoAction``, ``EchoObservation`` in ``echo_env.client``, image ``echo-env:latest``).
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, cast

from openenv_trl.errors import ConfigurationError

_PREFIX = "openenv-"
_NO_ENVIRONMENTS = {"openenv-core", "openenv-trl", "openenv-cli"}


@dataclass(frozen=True)
class InstalledEnvironment:
    """One environment package.

    Attributes:
        name: Its normal name, such as ``echo_env``.
        package: The installed distribution, such as ``openenv-echo_env``.
        version: The distribution's version.
        module: The package to import, such as ``echo_env``.
        description: A sentence.
        client_name: The client's class.
        action_name: The action's class.
        observation_name: The observation's class.
        default_image: The image that it is built as by default.
        spec_version: The version of its manifest's form; None without a manifest.
    """

    name: str
    package: str
    version: str
    module: str
    description: str
    client_name: str
    action_name: str
    observation_name: str
    default_image: str
    spec_version: int | None = None

    @property
    def key(self) -> str:
        """Its short name, such as ``echo``."""
        return self.name.removesuffix("_env")

    def client_class(self) -> type[Any]:
        """Return the client's class. Raises what `load` does."""
        return self.load(self.client_name)

    def action_class(self) -> type[Any]:
        """Return the action's class; `CallToolAction` where its actions are calls of tools. Raises what `load` does."""
        from openenv_trl.client.tool_client import MCPClientBase
        from openenv_trl.types import CallToolAction

        try:
            return self.load(self.action_name)
        except ConfigurationError:
            if issubclass(self.client_class(), MCPClientBase):
                return CallToolAction
            raise

    def observation_class(self) -> type[Any]:
        """Return the observation's class. Raises what `load` does."""
        return self.load(self.observation_name)

    def folder(self) -> Path:
        """Return the folder of its package, with its ``openenv.yaml``.

        Raises:
            ConfigurationError: It has none, so it cannot be served from there.
        """
        spec = importlib.util.find_spec(self.module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if Path(folder, "openenv.yaml").is_file():
                return Path(folder)
        raise ConfigurationError(
            f"The package '{self.package}' has no openenv.yaml, so its server cannot be started from it: pass "
            f"base_url= of one that runs, or build its image '{self.default_image}'."
        )

    def load(self, class_name: str) -> type[Any]:
        """Return a class of the package: from its client, its models, or the package itself.

        Raises:
            ConfigurationError: It has no such class, or cannot be imported.
        """
        for module_name in (f"{self.module}.client", f"{self.module}.models", self.module):
            try:
                found = getattr(importlib.import_module(module_name), class_name, None)
            except ModuleNotFoundError as error:
                if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                    continue  # it has no such module; another that is missing is another matter
                raise self._unusable(class_name, error) from error
            except ImportError as error:
                raise self._unusable(class_name, error) from error
            if isinstance(found, type):
                return cast("type[Any]", found)
        raise ConfigurationError(
            f"The package '{self.package}' has no class {class_name} in {self.module}.client, {self.module}.models or "
            f"{self.module}. Name it in its openenv.yaml, or import it yourself."
        )

    def _unusable(self, class_name: str, error: ImportError) -> ConfigurationError:
        return ConfigurationError(f"{class_name} of the package '{self.package}' cannot be imported: {error}.")


def normal_name(name: str) -> str:
    """Return an environment's normal name: ``echo``, ``echo-env`` and ``echo_env`` are ``echo_env``."""
    return re.sub(r"[-_]env$", "", name.strip().lower()).replace("-", "_") + "_env"


def installed_environments() -> dict[str, InstalledEnvironment]:
    """Return the environments that are installed, by their normal names."""
    found = (_environment(distribution) for distribution in distributions())
    return {each.name: each for each in found if each is not None}


def find_environment(name: str) -> InstalledEnvironment | None:
    """Return the installed environment of that name, or None."""
    return installed_environments().get(normal_name(name))


def _environment(distribution: Distribution) -> InstalledEnvironment | None:
    package: str = distribution.metadata["Name"] or ""
    plain = package.lower().replace("_", "-")
    if plain in _NO_ENVIRONMENTS or not (plain.startswith(_PREFIX) or plain.endswith("-env")):
        return None
    for module in _modules(distribution, plain):
        manifest = _manifest(module)
        if manifest is not None:
            return _described(package, distribution.version, module, manifest)
    # The public package counts any of its prefix as an environment, also one without a manifest.
    module = plain.removeprefix(_PREFIX).replace("-", "_")
    if plain.startswith(_PREFIX) and module.endswith("_env") and importlib.util.find_spec(module):
        return _described(package, distribution.version, module, {})
    return None


def _modules(distribution: Distribution, plain: str) -> Iterator[str]:
    yield plain.removeprefix(_PREFIX).replace("-", "_")
    for line in (distribution.read_text("top_level.txt") or "").split():
        yield line.strip()


def _manifest(module: str) -> dict[str, Any] | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder, "openenv.yaml")
        if file.is_file():
            import yaml  # only where there is a manifest to read

            try:
                content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                return None
            return cast("dict[str, Any]", content) if isinstance(content, dict) else None
    return None


def _described(package: str, version: str, module: str, manifest: dict[str, Any]) -> InstalledEnvironment:
    name = normal_name(str(manifest.get("name") or module))
    stem = "".join(word.capitalize() for word in name.removesuffix("_env").split("_"))
    spec_version = manifest.get("spec_version")
    return InstalledEnvironment(
        name=name,
        package=package,
        version=version,
        module=module,
        description=str(manifest.get("description") or f"{name} environment"),
        client_name=str(manifest.get("client") or f"{stem}Env"),
        action_name=str(manifest.get("action") or f"{stem}Action"),
        observation_name=str(manifest.get("observation") or f"{stem}Observation"),
        default_image=f"{name.replace('_', '-')}:latest",
        spec_version=spec_version if isinstance(spec_version, int) else None,
    )
