"""The catalogs hold all that is marked, in every language, and what is loaded is what is written there."""

from __future__ import annotations

import gettext
import re
from functools import cache
from pathlib import Path

import polib
import pytest
from django.utils.translation import gettext as _
from django.utils.translation import override, pgettext

from anvil_django import answers, endings, errors, model_errors, recovery, runs, steps
from anvil_django.admin import stored
from anvil_django.models.run import WAITS_FOR
from tests.docs.generated import every_error

from . import source

LOCALES = sorted(path for path in (source.PACKAGE / "locale").iterdir() if path.is_dir())
PLACEHOLDER = re.compile(r"%\(\w+\)[srd]|%%|\{\w*\}|</?\w+>")


@cache
def catalog_of(locale: Path) -> polib.POFile:
    return polib.pofile(str(locale / "LC_MESSAGES" / "django.po"))


def key(entry: polib.POEntry) -> source.Message:
    return entry.msgctxt, entry.msgid, entry.msgid_plural or None


def translations(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def test_there_are_catalogs():
    assert {path.name for path in LOCALES} >= {"de", "fr"}


@pytest.mark.parametrize("locale", LOCALES, ids=lambda path: path.name)
class TestCatalog:
    def test_it_holds_exactly_what_is_marked(self, locale):
        held, found = {key(entry) for entry in catalog_of(locale)}, source.messages()

        assert (found - held, held - found) == (set(), set()), "see docs/translations.md: makemessages"

    def test_everything_is_translated_and_nothing_is_a_guess(self, locale):
        catalog = catalog_of(locale)
        plurals = int(catalog.metadata["Plural-Forms"].partition("nplurals=")[2].partition(";")[0])

        assert [entry.msgid for entry in catalog if entry.fuzzy or not entry.translated()] == []
        assert [entry.msgid for entry in catalog if not all(translations(entry))] == []
        assert {len(entry.msgstr_plural) for entry in catalog if entry.msgid_plural} == {plurals}

    def test_what_is_filled_in_is_the_same(self, locale):
        wrong = [
            entry.msgid
            for entry in catalog_of(locale)
            for text in translations(entry)
            if set(PLACEHOLDER.findall(text)) != set(PLACEHOLDER.findall(entry.msgid))
        ]

        assert wrong == []

    def test_sentences_end_alike(self, locale):
        ends = re.compile(r"[.:?!]?$")
        wrong = [
            entry.msgid
            for entry in catalog_of(locale)
            for text in translations(entry)
            if ends.findall(text)[0] != ends.findall(entry.msgid)[0]
        ]

        assert wrong == []

    def test_what_is_loaded_is_what_is_written(self, locale):
        with (locale / "LC_MESSAGES" / "django.mo").open("rb") as file:
            loaded = gettext.GNUTranslations(file)
        written = {}
        for entry in catalog_of(locale):
            msgid = f"{entry.msgctxt}\4{entry.msgid}" if entry.msgctxt else entry.msgid
            for number, text in enumerate(translations(entry)):
                written[(msgid, number) if entry.msgid_plural else msgid] = text
        held = {msgid: text for msgid, text in loaded._catalog.items() if msgid != ""}  # type: ignore[attr-defined]

        assert held == written, "see docs/translations.md: compilemessages"

    def test_no_other_app_means_something_else_by_the_same_words(self, locale):
        """All catalogs of a site are one; a word that others have too needs a context."""
        with override(locale.name):
            otherwise = {
                entry.msgid: (said, entry.msgstr)
                for entry in catalog_of(locale)
                if not entry.msgid_plural
                and (said := pgettext(entry.msgctxt, entry.msgid) if entry.msgctxt else _(entry.msgid))
                != entry.msgstr
            }

        assert otherwise == {}


def test_the_default_sentences_of_errors_that_people_meet_are_in_the_catalogs():
    marked = {singular for _context, singular, _plural in source.messages()}
    takes_its_default = [
        cls
        for cls in every_error()
        if issubclass(cls, errors.DecisionError | errors.BadInputError)
        and cls.__init__ in (errors.AnvilError.__init__, errors.UnfitDecisionError.__init__)
    ]

    assert errors.ApprovalExpiredError in takes_its_default
    assert [cls.__name__ for cls in takes_its_default if (cls.__doc__ or "").strip() not in marked] == []
    with override("de"):
        assert errors.NotAllowedError().message == "Sie dürfen dies nicht entscheiden."


def test_the_sentences_that_workers_store_are_in_the_catalogs():
    marked = {singular for _context, singular, _plural in source.messages()}
    constant = {endings.SLICE_OVER, endings.PAUSED, endings.ENDED, recovery.INTERRUPTED, answers.REFUSED}
    constant |= {
        answers.TOO_LONG,
        model_errors.FAILED,
        *WAITS_FOR.values(),
        *model_errors._SENTENCES.values(),
    }

    assert (constant | set(stored.PATTERNS)) - marked == {model_errors.FACTS}


OVERLOADED = "Die API ist überlastet. Nichts zu tun: Der Aufruf wird wiederholt."
CUT = "Die Antwort endete, bevor sie vollständig war. Nichts zu tun: Der Aufruf wird wiederholt."


@pytest.mark.parametrize(
    ("sentence", "german"),
    [
        ("", ""),
        ("Something that somebody else wrote.", "Something that somebody else wrote."),
        (endings.ENDED, "Von einer Person abgebrochen."),
        (steps.PAUSE_LIMIT.format(pauses=7), "Das Modell hat seinen Zug 7-mal in Folge angehalten."),
        (
            model_errors.ModelCallError("retry", "overloaded", "no {room} %(x)s", status=529).message,
            f"{OVERLOADED} Die API meldete: no {{room}} %(x)s (HTTP 529)",
        ),
        (
            model_errors.ModelCallError("retry", "cut_stream", request_id="req_1").message,
            f"{CUT} (request req_1)",
        ),
        (
            runs.THEN_RESUME.format(why=errors.UnknownAgentError("a", ["b"]).message),
            "Es ist kein Agent namens 'a' registriert (registriert: b).",
        ),
    ],
)
def test_a_stored_sentence_is_shown_in_the_language_of_the_reader(sentence, german):
    with override("de"):
        assert stored.shown(sentence).startswith(german)
    with override("en"):
        assert stored.shown(sentence) == sentence


def test_a_sentence_within_a_sentence_is_translated_too():
    with override("de"):
        said = stored.shown(runs.THEN_RESUME.format(why=answers.REFUSED))

    assert said == "Das Modell hat sich geweigert zu antworten. Setzen Sie dann den Lauf fort."
