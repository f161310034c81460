"""`rookhold check`: what this computer can enforce, and whether the configured gateway works."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from rookhold import ApiError, IntegrityError, ProtocolError, RookholdError
from rookhold_cli import extras, gateway, host, output, plain_words
from rookhold_cli.errors import MissingExtraError
from rookhold_cli.exits import Exit, of_error
from rookhold_cli.exposure import is_public_plain_http
from rookhold_cli.telling import Teller

_LANGUAGES: Final = ("python", "node", "bash")


@dataclass(frozen=True, slots=True)
class _GatewayReport:
    """What a configured gateway answered; `problem` is the first thing that is wrong with it."""

    base_url: str
    facts: dict[str, Any]
    problem: str | None
    exit: Exit


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> int:
    """Say what this computer can enforce, which sandbox a gateway takes here and why.

    With ROOKHOLD_BASE_URL set, also check that gateway. Ends with 0 only if jobs can be run in a
    sandbox here and the gateway, if there is one, works.
    """
    target = gateway.configured()
    here = extras.present("rookhold_exec")
    if target is None and not here:
        raise MissingExtraError("checking this computer", "server")
    found = host.look(os.environ) if here else None
    away = None if target is None else _ask(target)
    exits = [Exit.OK]
    if found is not None and (not found.sandboxed):
        exits.append(Exit.PROBLEM)
    if away is not None and away.problem is not None:
        exits.append(away.exit)
    if as_json:
        output.as_json(_document(found, away))
        return exits[-1]
    tell = Teller()
    if found is not None:
        _tell_host(tell, found)
    else:
        tell.para("Checking this computer itself needs an extra: rookhold-cli[server].")
    if away is not None:
        _tell_gateway(tell, away)
    return exits[-1]


def _tell_host(tell: Teller, found: host.Host) -> None:
    tell.title("This computer")
    tell.items(
        [
            (fact.control, "yes" if fact.available else f"no: {fact.why or 'unknown why'}")
            for fact in found.facts
        ],
        width=24,
    )
    tell.para("")
    if found.options:
        tell.title("The sandboxes that it could take, the strongest first")
        tell.items([(_name(each.backend), _said(each)) for each in found.options], width=24)
        tell.para("")
    posture = found.posture
    if posture is None:
        tell.bad(f"FAIL: no job can be run here ({found.asked_for}): {found.failure}")
        return
    name = _name(posture.backend)
    asked = "auto" if found.asked_for == "auto" else f"ROOKHOLD_SANDBOX={found.asked_for}"
    tell.para(f"{asked} takes {name} ({posture.backend}): {posture.note}.")
    if posture.controls:
        tell.para("Tried with a real sandbox just now. A job in it:")
        tell.items([("-", words) for words in plain_words.controls(posture.controls)], width=2)
    for sentence in plain_words.loose_limits(_flags(posture.limit_enforcement)):
        tell.para(sentence)
    tell.para(plain_words.strength(posture.backend, str(posture.isolation_class)))
    missing = [language for language in _LANGUAGES if language not in posture.languages]
    tell.para(
        f"Languages: {', '.join(posture.languages)}."
        + (f" Not found or not working: {', '.join(missing)}." if missing else "")
    )
    if found.sandboxed:
        tell.good("OK: jobs run in a sandbox here.")
    else:
        tell.bad("FAIL: this computer offers no sandbox, so jobs would run in none.")


def _name(backend: str) -> str:
    return plain_words.BACKENDS.get(backend, backend)


def _said(option: host.Option) -> str:
    if option.available:
        return f"yes ({option.backend}, class {option.isolation_class})"
    return f"no ({option.backend}); missing: {option.why}"


def _tell_gateway(tell: Teller, away: _GatewayReport) -> None:
    tell.title(f"The gateway at {away.base_url}")
    tell.items([(name, str(value)) for name, value in away.facts.items()], width=24)
    if away.problem is None:
        tell.good("OK: it answers, knows your key and takes jobs.")
    else:
        tell.bad(f"FAIL: {away.problem}")


def _ask(target: gateway.Target) -> _GatewayReport:
    facts: dict[str, Any] = {}
    problem, exit_status = None, Exit.OK
    try:
        with target.client() as client:
            client.health()
            readiness = client.ready()
            facts["ready"] = "yes" if readiness.ready else readiness.code
            if not readiness.ready:
                problem, exit_status = f"it is not ready ({readiness.code})", Exit.UNREACHABLE
            who = client.whoami()
            facts |= {"tenant": who.tenant, "scopes": ", ".join(who.scopes)}
            able = client.capabilities()
            facts |= {
                "version": able.version,
                "sandbox": f"{able.execution.backend} (class {able.execution.isolation_class})",
                "languages": ", ".join(able.languages),
                "signs evidence": "yes" if able.signs else "no",
            }
    except ApiError as exc:
        problem, exit_status = f"it refuses: {exc} ({exc.code})", of_error(exc)
    except RookholdError as exc:
        problem, exit_status = f"{exc} ({exc.code})", of_error(exc)
        if isinstance(exc, ProtocolError) and not isinstance(exc, IntegrityError):
            problem += "; is that the address of a gateway?"
    if problem is None and is_public_plain_http(target.base_url):
        problem = "plain HTTP to a public address: your key and your jobs can be read on the way"
        exit_status = Exit.PROBLEM
    return _GatewayReport(target.base_url, facts, problem, exit_status)


def _flags(enforcement: Any) -> dict[str, bool]:
    return {name: bool(getattr(enforcement, name)) for name in plain_words.LIMITS}


def _document(found: host.Host | None, away: _GatewayReport | None) -> dict[str, Any]:
    document: dict[str, Any] = {"host": None, "gateway": None}
    if found is not None:
        posture = found.posture
        document["host"] = {
            "facts": [asdict(fact) for fact in found.facts],
            "backends": [asdict(option) for option in found.options],
            "asked_for": found.asked_for,
            "failure": found.failure,
            "backend": None if posture is None else str(posture.backend),
            "isolation_class": None if posture is None else str(posture.isolation_class),
            "note": None if posture is None else posture.note,
            "controls": [] if posture is None else list(posture.controls),
            "languages": [] if posture is None else list(posture.languages),
            "limit_enforcement": None if posture is None else _flags(posture.limit_enforcement),
            "ok": found.sandboxed,
        }
    if away is not None:
        document["gateway"] = {
            "base_url": away.base_url,
            "facts": away.facts,
            "problem": away.problem,
            "ok": away.problem is None,
        }
    return document
