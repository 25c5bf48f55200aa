"""The approvals: read and decide. No rule lives here: each endpoint hands a checked request on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db.models import Prefetch, QuerySet
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from .. import approvals
from ..models import Approval, Run, ToolCall
from ..states import Channel
from .base import AnvilViewSet, Limits
from .bodies import AnswerRequest, ApproveRequest, EmptyRequest, RejectRequest, SettleRequest
from .lists import ApprovalFilter, ApprovalQuery
from .permissions import MaySeeApprovals
from .schema import documented
from .serializers import ApprovalSerializer
from .throttles import DecideThrottle

ANSWERS = {200: ApprovalSerializer}
REFUSALS = (404, 409, 410)


class ApprovalViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, AnvilViewSet):
    """Read and decide approvals."""

    permission_classes = (IsAuthenticated, MaySeeApprovals)
    filter_backends = (ApprovalFilter,)
    serializer_class = ApprovalSerializer
    request_serializers = {
        "approve": ApproveRequest,
        "reject": RejectRequest,
        "answer": AnswerRequest,
        "settle": SettleRequest,
        "claim": EmptyRequest,
        "release": EmptyRequest,
    }
    limited_by: Limits = dict.fromkeys(request_serializers, DecideThrottle)

    def get_queryset(self) -> QuerySet[Approval]:
        """All approvals, with what is shown of each and without the large columns that are not."""
        # Not joined: MariaDB would begin with the runs, and sort all there are for one page of cases.
        return Approval.objects.prefetch_related(
            Prefetch("run", Run.objects.defer("container", "limits", "metadata")),
            Prefetch("call", ToolCall.objects.defer("result")),
            "decisions",
        )

    @documented({200: ApprovalSerializer(many=True)}, query=ApprovalQuery, problems=(422,))
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The approvals, in pages; without a filter those that wait."""
        return super().list(request, *args, **kwargs)

    @documented(ANSWERS, problems=(404,))
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A question, the decisions taken, and whether the caller may decide it."""
        return super().retrieve(request, *args, **kwargs)

    @documented(ANSWERS, body=ApproveRequest, problems=REFUSALS)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Say yes, as the authenticated user."""
        return self._decide(approvals.approve)

    @documented(ANSWERS, body=RejectRequest, problems=REFUSALS)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        """Say no, as the authenticated user, and tell the agent why."""
        return self._decide(approvals.reject)

    @documented(ANSWERS, body=AnswerRequest, problems=REFUSALS)
    @action(detail=True, methods=["post"])
    def answer(self, request: Request, pk: str) -> Response:
        """Give the result in the tool's place."""
        return self._decide(approvals.answer)

    @documented(ANSWERS, body=SettleRequest, problems=REFUSALS)
    @action(detail=True, methods=["post"])
    def settle(self, request: Request, pk: str) -> Response:
        """Say what became of a call in doubt."""
        return self._decide(approvals.settle)

    @documented(ANSWERS, body=EmptyRequest, problems=REFUSALS)
    @action(detail=True, methods=["post"])
    def claim(self, request: Request, pk: str) -> Response:
        """Keep others from deciding the case while the caller reads it."""
        return self._change(approvals.claim)

    @documented(ANSWERS, body=EmptyRequest, problems=REFUSALS)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """Give the caller's claim back."""
        return self._change(approvals.release)

    def _decide(self, decide: Callable[..., Approval]) -> Response:
        return self._change(partial(decide, channel=str(Channel.API)))

    def _change(self, change: Callable[..., Approval]) -> Response:
        approval = self.get_object()
        changed = change(approval, user=self.request.user, **self.checked(self.request))
        return Response(ApprovalSerializer(changed, context=self.get_serializer_context()).data)
