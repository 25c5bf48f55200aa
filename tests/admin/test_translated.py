"""The pages in German and in French: the words, the numbers and the dates of whoever reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polib
import pytest
from django.conf import settings
from django.core import mail
from django.test import Client, override_settings
from django.utils.translation import override

import anvil_django
from anvil_django import endings, notifications, start_run
from anvil_django.models import Run
from anvil_django.testing import fixed_clock

from .long_runs import at, long_run
from .teller import APPROVALS, RUNS, Ask, logged_in, person

pytestmark = pytest.mark.django_db

DASHBOARD = f"{RUNS}dashboard/?days=7"
LOCALE = Path(anvil_django.__file__).parent / "locale"


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    """A site that speaks the language of the browser, at a time when the runs of the tests were just made."""
    at_place = settings.MIDDLEWARE.index("django.middleware.common.CommonMiddleware")
    middleware = list(settings.MIDDLEWARE)
    middleware.insert(at_place, "django.middleware.locale.LocaleMiddleware")
    # The middleware leaves the language of the last request to whatever comes next in this thread.
    with override_settings(MIDDLEWARE=middleware), fixed_clock(at(3_600)), override(settings.LANGUAGE_CODE):
        yield


@pytest.fixture
def client() -> Client:
    everything = ("control_run", "view_run", "add_run", "decide_approval", "view_approval")
    return logged_in(person("rita", *everything))


def text_of(client: Client, url: str, language: str) -> str:
    response = client.get(url, headers={"accept-language": language})
    assert response.status_code == 200
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", response.text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", html).replace("&#x27;", "'").split())


def english_left(text: str) -> list[str]:
    """Our own English sentences in a page: of three words or more, so that none is one of the data."""
    catalog = polib.pofile(str(LOCALE / "de" / "LC_MESSAGES" / "django.po"))
    sentences = [entry.msgid for entry in catalog if entry.msgid.count(" ") >= 2 and "%" not in entry.msgid]
    return [sentence for sentence in sentences if sentence in text]


PAGES = {
    "run": (
        {"de": "Von einer Person abgebrochen.", "fr": "Annulée par une personne."},
        {"de": "Werkzeugaufruf: mail", "fr": "Appel d’outil : mail"},
        {"de": "1. Dez, 09:00:03", "fr": "1 déc, 09:00:03"},
        {"de": "0,0123 $", "fr": "0,0123 $"},
        {"de": "Wohin die Zeit ging:", "fr": "Où est passé le temps :"},
    ),
    "runs": (
        {"de": "abgebrochen", "fr": "annulé"},
        {"de": "Gestartet von", "fr": "Lancée par"},
        {"de": "Von einer Person abgebrochen.", "fr": "Annulée par une personne."},
    ),
    "case": (
        {
            "de": "teller möchte wire ausführen (account: DE-1, amount: 50)",
            "fr": "teller souhaite exécuter wire (account: DE-1, amount: 50)",
        },
        {"de": "Ihre Entscheidung", "fr": "Votre décision"},
        {"de": "Mit Änderungen freigeben", "fr": "Approuver avec modifications"},
        {"de": "1. Dezember 2026", "fr": "1 décembre 2026"},
    ),
    "verdict": (
        {"de": "Änderungen anzeigen", "fr": "Montrer ce qui va changer"},
        {"de": "Wird mit der Entscheidung aufbewahrt", "fr": "Conservé avec la décision"},
    ),
    "queue": (
        {"de": "1 davon können Sie entscheiden.", "fr": "Vous pouvez décider de 1 d’entre eux."},
        {"de": "Freigeben", "fr": "Approuver"},
        {"de": "Wartezeit", "fr": "En attente depuis"},
    ),
    "dashboard": (
        {"de": "Erfolgsquote", "fr": "Taux de réussite"},
        {"de": "Kosten nach Agent", "fr": "Coût par agent"},
        {"de": "1. Dezember 2026", "fr": "1 décembre 2026"},
    ),
    "fork": (
        {
            "de": "Ein neuer Lauf beginnt",
            "fr": "Une nouvelle exécution commence",
        },
        {"de": "Nach Iteration", "fr": "Après l’itération"},
    ),
}


@pytest.mark.parametrize("language", ["de", "fr"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_speaks_the_language_of_the_browser(
    name: str, language: str, ask: Ask, client: Client
) -> None:
    approval = ask(user=person("carla"))
    Run.objects.filter(pk=approval.run_id).update(created_at=at(0))
    run = long_run(2, status="cancelled", error=endings.ENDED, cost_usd="0.0123", created_at=at(0))
    url = {
        "run": f"{RUNS}{run.pk}/change/",
        "runs": RUNS,
        "case": f"{APPROVALS}{approval.pk}/change/",
        "verdict": f"{APPROVALS}{approval.pk}/decide/edit/",
        "queue": APPROVALS,
        "dashboard": DASHBOARD,
        "fork": f"{RUNS}{run.pk}/fork/",
    }[name]

    text = text_of(client, url, language)

    normal = text.replace("\u00a0", " ")
    assert [said[language] for said in PAGES[name] if said[language] not in normal] == []
    assert english_left(text) == []


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("de", "Der Lauf 'held' hat den Status „pausiert“; der Status „eingereiht“ ist nicht möglich."),
        ("fr", "L’exécution 'held' a le statut « en pause » ; elle ne peut pas passer au statut"),
    ],
)
def test_a_refusal_over_rest_speaks_the_language_of_the_request(
    language: str, said: str, client: Client
) -> None:
    run = start_run("teller", "Pay.", run_id="held")
    Run.objects.filter(pk=run.pk).update(status="paused", error=endings.PAUSED)
    url = "/api/agents/v1/runs/held/retry/"

    response = client.post(url, {}, "application/json", headers={"accept-language": language})

    assert response.status_code == 409
    assert response.json()["detail"].replace("\u00a0", " ").startswith(said)
    assert (response.json()["code"], response.json()["current_status"]) == ("illegal_transition", "paused")


def test_what_is_stored_of_a_run_is_the_same_over_rest_in_every_language(client: Client) -> None:
    run = start_run("teller", "Pay.", run_id="held")
    Run.objects.filter(pk=run.pk).update(status="paused", error=endings.PAUSED)

    answer = client.get("/api/agents/v1/runs/held/", headers={"accept-language": "de"}).json()

    assert (answer["why"], answer["status"]) == (endings.PAUSED, "paused")


def test_what_a_worker_stores_is_english_whatever_the_site_speaks(ask: Ask) -> None:
    with override("de"):
        run = ask().run

    assert run.why == "Waits for a person's decision."


def test_reviewers_are_written_to_in_the_language_of_the_site(ask: Ask) -> None:
    person("rita", "decide_approval")
    rita = person("ruth", "decide_approval")
    rita.email = "ruth@example.com"
    rita.save()
    approval: Any = ask()

    with override_settings(LANGUAGE_CODE="de"), override("fr"):
        notifications.tell(approval, "")

    (message,) = mail.outbox
    assert message.subject == "Freigabe benötigt: wire"
    assert "Der Agent teller wartet auf eine Entscheidung." in message.body
