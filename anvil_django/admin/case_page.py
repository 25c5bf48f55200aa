"""The page of one case: the verdicts in words, the pages that ask, claim and release."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from .. import approvals, reviewers
from ..errors import AnvilError, UnfitDecisionError
from ..models import Approval
from . import cases, conversation
from .bulk import CHANGED, MESSAGE_LIMIT, has_changed, mark_of, outcome_of, why_not
from .readonly import Outcomes
from .rendering import block, visible
from .verdicts import AGREED, VERDICTS, Verdict, fitting

if TYPE_CHECKING:
    from .readonly import ReadOnlyMixin as Base
else:
    Base = object

BY_ACTION = {verdict.action: verdict for verdict in VERDICTS}


class CasePageMixin(Base):
    """What can be done about one case; decided on pages of their own, never by following a link."""

    def get_urls(self) -> list[URLPattern]:
        """Those of the case's own pages, before Django's."""
        wrap, name = self.admin_site.admin_view, f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("<int:pk>/decide/<slug:action>/", wrap(self.decide_view), name=f"{name}_decide"),
            path("<int:pk>/claim/", wrap(self.claim_view), name=f"{name}_claim"),
            path("<int:pk>/release/", wrap(self.release_view), name=f"{name}_release"),
            *super().get_urls(),
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Add the verdicts and the conversation."""
        approval = kwargs.get("obj")
        if approval is not None:
            context["panel"] = self._panel(request, approval)
            context["conversation"] = conversation.read(approval.run)
        return super().render_change_form(request, context, *args, **kwargs)

    def _panel(self, request: HttpRequest, approval: Approval) -> dict[str, Any]:
        user = request.user
        why = reviewers.why_not_now(user, approval)
        is_mine = reviewers.is_claimed(approval) and approval.claimed_by_id == user.pk
        return {
            "is_open": cases.is_open(approval),
            "why_not": visible(why, MESSAGE_LIMIT),
            "for_whom": visible(reviewers.reviewers_of(approval)),
            "quorum": visible(cases.progress_sentence(approval), MESSAGE_LIMIT),
            "claimed_by": visible(approval.claimed_name) if reviewers.is_claimed(approval) else "",
            "is_mine": is_mine,
            "claim_url": "" if why or is_mine else self._url("claim", approval.pk),
            "release_url": self._url("release", approval.pk) if is_mine else "",
            "verdicts": [
                {
                    "title": verdict.title_for(approval),
                    "means": verdict.means_for(approval),
                    "is_yes": verdict.is_yes,
                    "url": "" if why else self._url("decide", approval.pk, verdict.action),
                }
                for verdict in fitting(approval)
            ],
        }

    # Pages.

    def decide_view(self, request: HttpRequest, pk: int, action: str) -> HttpResponse:
        """Ask for what goes with a verdict, show what it changes, and give it."""
        approval, verdict = self._case(request, pk), BY_ACTION.get(action)
        if isinstance(approval, HttpResponse):
            return approval
        if verdict is None:
            return self._back(request, pk, _("There is no such verdict."))
        groups = reviewers.groups_of(request.user)
        if why := why_not(approval, verdict, request.user, groups):
            return self._back(request, pk, why)
        sent = request.POST if request.method == "POST" else None
        form = verdict.form_for(approval)(sent, approval=approval, user=request.user)
        if sent is None or not form.is_valid() or "again" in sent:
            return self._page(request, approval, verdict, form)
        if verdict.is_yes and has_changed(approval, sent.getlist("seen")):
            messages.error(request, CHANGED)
            return self._page(request, approval, verdict, form)
        if not self.is_confirmed(request):
            return self._page(request, approval, verdict, form, is_preview=verdict.has_preview)
        return self._give(request, approval, verdict, form)

    def _give(
        self, request: HttpRequest, approval: Approval, verdict: Verdict, form: forms.Form
    ) -> HttpResponse:
        try:
            decided = verdict.decide(approval, request.user, form.cleaned_data)
        except UnfitDecisionError as exc:
            form.add_error(None, exc.message)
            return self._page(request, approval, verdict, form)
        except AnvilError as exc:
            # Somebody was faster, or reads it: the message says who.
            return self._back(request, approval.pk, exc.message)
        outcomes = Outcomes(decided=verdict.done, agreed=AGREED)
        outcomes.done(outcome_of(decided))
        outcomes.tell(request)
        return HttpResponseRedirect(self._change_url(approval.pk))

    def claim_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Claim the case."""
        return self._mark_one(request, pk, approvals.claim, _("You have claimed this case."))

    def release_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Give the claim back."""
        return self._mark_one(request, pk, approvals.release, _("The case is released."))

    def _mark_one(
        self, request: HttpRequest, pk: int, change: Callable[..., Approval], done: str
    ) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        approval = self._case(request, pk)
        if isinstance(approval, HttpResponse):
            return approval
        try:
            change(approval, user=request.user)
        except AnvilError as exc:
            return self._back(request, pk, exc.message)
        messages.success(request, done)
        return HttpResponseRedirect(self._change_url(pk))

    # Helpers.

    def _case(self, request: HttpRequest, pk: int) -> Approval | HttpResponse:
        """The case, or where somebody goes who may not decide, or who asks for a case that is not there."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        approval: Approval | None = self.get_queryset(request).defer(None).filter(pk=pk).first()
        if approval is None:
            messages.warning(request, _("This case is not there any more."))
            return HttpResponseRedirect(self._list_url())
        if not approvals.may_decide(request.user):
            return self._back(request, pk, reviewers.why_not(request.user, approval))
        return approval

    def _page(
        self,
        request: HttpRequest,
        approval: Approval,
        verdict: Verdict,
        form: forms.Form,
        *,
        is_preview: bool = False,
    ) -> TemplateResponse:
        change = reason = None
        if is_preview:
            change = cases.change(approval, form.cleaned_data["arguments"])
            reason = form.cleaned_data["reason"] and block(form.cleaned_data["reason"])
        return self.ask(
            request,
            "admin/anvil_django/approval/verdict.html",
            title=verdict.title_for(approval),
            approval=approval,
            verdict=verdict,
            form=form,
            mark=mark_of(approval),
            sentence=cases.sentence(approval),
            means=verdict.means_for(approval),
            quorum=visible(cases.progress_sentence(approval), MESSAGE_LIMIT),
            arguments=cases.arguments(approval),
            proposal=cases.proposal(approval),
            payload=cases.payload(approval),
            asked=cases.asked(approval.run_id, approval._state.db),
            is_preview=is_preview,
            asks_for_preview=verdict.has_preview and not is_preview,
            change=change,
            reason=reason,
            target=request.path,
            list_url=self._change_url(approval.pk),
            queue_url=self._list_url(),
        )

    def _back(self, request: HttpRequest, pk: int, why: Any) -> HttpResponseRedirect:
        messages.warning(request, visible(str(why), MESSAGE_LIMIT) if not hasattr(why, "__html__") else why)
        return HttpResponseRedirect(self._change_url(pk))

    def _change_url(self, pk: int) -> str:
        return self._url("change", pk)

    def _url(self, page: str, *args: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=args, current_app=self.admin_site.name)
