"""The OpenAPI document of the REST API, and whether an answer is one that it describes.

python -m tests.openapi    # writes docs/openapi.yaml anew
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from jsonschema import Draft202012Validator

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "openapi.yaml"
HEADER = "# Written by `python -m tests.openapi`; a test compares it with the code.\n"
SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "TITLE": "anvil_django",
    "DESCRIPTION": "Start, watch, steer and decide runs of agents, under the prefix of your site.",
    "VERSION": "1",
}
PREFIX = "/api/agents"
_ONE_AT_A_TIME = Lock()


def generate() -> dict[str, Any]:
    """The document as the code has it; fails on anything drf-spectacular warns about."""
    from drf_spectacular.drainage import GENERATOR_STATS, reset_generator_stats
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.settings import patched_settings
    from drf_spectacular.validation import validate_schema

    reset_generator_stats()
    with patched_settings(SETTINGS):
        generator = SchemaGenerator(urlconf="anvil_django.api.urls")
        document: dict[str, Any] = generator.get_schema(request=None, public=True)
        validate_schema(document)
    assert not GENERATOR_STATS, dict(GENERATOR_STATS._warn_cache) | dict(GENERATOR_STATS._error_cache)
    return document


def as_text(document: dict[str, Any]) -> str:
    """The document as it is checked in."""
    from drf_spectacular.renderers import OpenApiYamlRenderer

    return HEADER + OpenApiYamlRenderer().render(document, renderer_context={}).decode()


def strict() -> dict[str, Any]:
    """The document with objects that have no members but those described."""
    with _ONE_AT_A_TIME:  # drf-spectacular loads its parts when they are first used.
        return _strict()


@cache
def _strict() -> dict[str, Any]:
    document = copy.deepcopy(generate())
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema and name != "AnvilCheckpoint":
            schema.setdefault("additionalProperties", False)
    return document


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation: method, path, and what is said about it."""
    for path, item in strict()["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def operation_of(method: str, path: str) -> dict[str, Any] | None:
    """The operation behind a request, if there is one."""
    for known, template, operation in operations():
        pattern = re.sub(r"\{\w+\}", "[^/]+", template)
        if known == method and re.fullmatch(re.escape(PREFIX) + pattern, path):
            return operation
    return None


def check(method: str, path: str, response: Any) -> str:
    """Assert that an answer is described; the name of its operation, or ""."""
    operation = operation_of(method, path)
    if operation is None or response.status_code == 405:
        return ""
    name = str(operation["operationId"])
    described = operation["responses"].get(str(response.status_code))
    assert described is not None, f"{name} does not say that it may answer {response.status_code}"
    media_type = response.get("Content-Type", "").partition(";")[0]
    if media_type == "text/html":  # The browsable API shows the same.
        return name
    content = described.get("content", {})
    assert media_type in content or (not content and not media_type), f"{name}: {media_type}"
    if media_type.endswith("json"):
        schema = {**content[media_type]["schema"], "components": strict()["components"]}
        problems = list(Draft202012Validator(schema).iter_errors(response.json()))
        assert not problems, f"{name}: {problems[0].json_path}: {problems[0].message}"
    return name


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    DOCUMENT.write_text(as_text(generate()))
