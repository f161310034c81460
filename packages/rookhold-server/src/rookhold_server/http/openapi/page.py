"""The document as one page that needs nothing else: no script, no request, one style."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8886;--quiet:#6a6a6a}
@media (prefers-color-scheme:dark){:root{--quiet:#a8a8a8}}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{overflow:auto;border:1px solid var(--line);padding:.5rem}
details{border-top:1px solid var(--line);padding:.3rem 0}
summary{cursor:pointer}
summary b{display:inline-block;min-width:4.5rem}
summary span{color:var(--quiet)}
th,td{text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0}
:target{outline:2px solid}
"""
_TICKS: Final = re.compile(r"`([^`]*)`")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    body: bytes
    policy: bytes  # the Content-Security-Policy that lets its own style pass and nothing else


def render(document: Mapping[str, Any]) -> Page:
    """Write `document` for people."""
    body = "".join(_whole(document)).encode()
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return Page(body=body, policy=policy.encode())


def _whole(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{html.escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
    yield f"<header><h1>{html.escape(info['title'])} API {html.escape(info['version'])}</h1>"
    yield f"<p>{_text(info['description'])} A machine reads "
    yield '<a href="/openapi.json">openapi.json</a>.</p></header><main>'
    yield "<h2>Operations</h2>"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    yield "<h2>Schemas</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f'<details id="{html.escape(name)}"><summary><code>{html.escape(name)}</code> '
        yield f"<span>{_text(_first_line(schema))}</span></summary>{_json(schema)}</details>"
    yield "</main></body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details id="{html.escape(operation["operationId"])}"><summary><b>{method}</b>'
    yield f"<code>{html.escape(path)}</code> <span>{_text(operation['summary'])}</span></summary>"
    scope = operation.get("x-scope")
    public = "Public." if operation.get("security") == [] else "Needs the operator's token."
    yield f"<p>{'Needs the scope <code>' + scope + '</code>.' if scope else public}</p>"
    if operation["parameters"]:
        yield '<table><tr><th scope="col">parameter<th scope="col">in<th scope="col">meaning</tr>'
        for parameter in operation["parameters"]:
            yield f"<tr><td><code>{html.escape(parameter['name'])}</code><td>{parameter['in']}"
            yield f"<td>{_text(parameter['description'])} {_code(parameter['schema'])}</tr>"
        yield "</table>"
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: <code>{media_type}</code>, {_reference(content['schema'])}</p>"
        for example in content["examples"].values():
            yield f"<p>{_text(example['summary'])}</p>{_json(example['value'])}"
    yield '<table><tr><th scope="col">answer<th scope="col">meaning</tr>'
    for status, answer in operation["responses"].items():
        yield f"<tr><td>{status}<td>{_text(answer['description'])}"
        for content in answer.get("content", {}).values():
            yield f" {_reference(content.get('schema', {}))}"
        yield "</tr>"
    yield "</table></details>"


def _first_line(schema: Mapping[str, Any]) -> str:
    text: str = schema.get("description", "")
    return text.partition("\n")[0]


def _reference(schema: Mapping[str, Any]) -> str:
    if "$ref" not in schema:
        return ""
    name = html.escape(schema["$ref"].rpartition("/")[2])
    return f'<a href="#{name}"><code>{name}</code></a>'


def _text(text: str) -> str:
    """Escape, and set what stands between backquotes as code."""
    return _TICKS.sub(r"<code>\1</code>", html.escape(text))


def _code(value: object) -> str:
    return f"<code>{html.escape(msgspec.json.encode(value).decode())}</code>"


def _json(value: object) -> str:
    pretty = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{html.escape(pretty)}</pre>"
