"""Whatever the package says to people is marked for translation."""

from __future__ import annotations

import pytest

from . import source

SAID_TO_PEOPLE = (
    "admin/",
    "api/agents.py",
    "api/permissions.py",
    "apps.py",
    "approvals.py",
    "calls.py",
    "continuing.py",
    "errors.py",
    "fitting.py",
    "forking.py",
    "limits.py",
    "models/",
    "notifications.py",
    "redaction.py",
    "reviewers.py",
    "runs.py",
    "stores/decisions.py",
    "templatetags/",
)
"""The modules that speak to people; the rest speaks to the model, to developers, or in a terminal."""

EXCEPTIONS = {
    ("admin/rendering.py", "Nd"): "a category of Unicode",
    ("admin/rendering.py", "No"): "a category of Unicode",
    ("apps.py", "anvil_django"): "the label of the app, which is an identifier",
    ("calls.py", "approved must be True or False, not {}; nothing was decided."): "code gave a wrong type",
    ("models/approval.py", "Decisions are append-only: record another one instead."): "code would change one",
}
"""What reads like something said to people and is not, with the reason."""


def speaking_modules() -> dict[str, str]:
    paths = {path.relative_to(source.PACKAGE).as_posix(): path for path in source.python_files()}
    return {name: path.read_text() for name, path in paths.items() if name.startswith(SAID_TO_PEOPLE)}


def test_every_text_of_the_modules_that_speak_to_people_is_marked():
    found = {
        (name, text): line
        for name, code in speaking_modules().items()
        for line, text in source.unmarked(code)
    }

    assert {place: line for place, line in found.items() if place not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) - set(found) == set(), "no longer there"


def test_every_module_that_is_to_be_looked_at_is_there():
    assert [path for path in SAID_TO_PEOPLE if not (source.PACKAGE / path).exists()] == []


def test_every_text_of_a_template_is_marked():
    found = {path.name: source.unmarked_in_template(path.read_text()) for path in source.templates()}

    assert {name: texts for name, texts in found.items() if texts} == {}


def test_scripts_say_nothing_of_their_own():
    scripts = [path for path in (source.PACKAGE / "static").rglob("*.js") if "vendor" not in path.parts]

    assert scripts
    assert [text for path in scripts for text in source.unmarked_in_script(path.read_text())] == []


@pytest.mark.parametrize(
    "code",
    [
        'raise NotAllowedError("You may not do that.")',
        'raise NotAllowedError(f"You may not do {that}.")',
        'name = models.CharField("name", max_length=10)',
        'name = models.CharField(_("name"), help_text="a name")',
        '@admin.display(description="why")\ndef why(self): ...',
        'title = "Approve"',
        'short = Column("Runs", kind)',
        'messages.error(request, "It was {} already.".format(status))',
        "html = format_html('<p>Hello {}</p>', name)",
    ],
)
def test_a_text_that_is_not_marked_is_found(code):
    assert len(list(source.unmarked(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        'from django.utils.translation import gettext as _\nraise NotAllowedError(_("You may not do that."))',
        'from django.utils.translation import gettext_lazy as __\ntitle = __("Approve")',
        'logger.warning("The run %s was left alone.", run)',
        'rows.filter(status="done").order_by("-created_at")',
        "html = format_html('<p class=\"anvil-why\">{}</p>', why)",
        'def f():\n    """What it does."""',
    ],
)
def test_a_text_that_is_marked_or_said_to_nobody_is_passed_over(code):
    assert list(source.unmarked(code)) == []


@pytest.mark.parametrize(
    "template",
    [
        "<p>Hello</p>",
        '{% translate "x" %}<p>Hello</p>',
        "{% if a %}Hello{% endif %}",
        '<nav aria-label="Steps"></nav>',
        '<p data-broken="The server is gone."></p>',
        '<input type="submit" value="Save">',
        "<svg><title>Hello</title></svg>",
    ],
)
def test_a_text_of_a_template_that_is_not_marked_is_found(template):
    assert len(source.unmarked_in_template(template)) == 1


@pytest.mark.parametrize(
    "template",
    [
        '<p>{% translate "Hello" %}: {{ name }}</p>',
        "{% blocktranslate trimmed %}\nHello\n{% endblocktranslate %}",
        '<nav aria-label="{% translate \'Steps\' %}" class="anvil-steps">&rsaquo; · ←</nav>',
        "{# Hello #}{% comment %}Hello{% endcomment %}",
        '<input type="hidden" name="confirmed" value="yes">',
    ],
)
def test_a_text_of_a_template_that_is_marked_is_passed_over(template):
    assert source.unmarked_in_template(template) == []


def test_a_sentence_of_a_script_is_found():
    assert source.unmarked_in_script('told.textContent = "The server is gone.";') == ["The server is gone."]
    assert (
        source.unmarked_in_script('"use strict"; box.className = "anvil-box wide"; // It is all right') == []
    )
