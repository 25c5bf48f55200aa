"""The endpoints. No rule lives here: each one hands a checked request to ``runs.py`` or ``approvals.py``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from django.db.models import QuerySet
from django.utils.cache import add_never_cache_headers
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import BaseRenderer, BrowsableAPIRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.viewsets import GenericViewSet

from .. import approvals, runs
from ..errors import BadInputError, UnknownRunError
from ..identity import check_run_id
from ..models import Approval, Run
from ..reviewers import groups_of, name_of
from ..states import Channel
from . import problems
from .formats import JSONParser, JSONRenderer
from .lists import ApprovalFilter, NewestFirst, RunFilter
from .permissions import MaySeeApprovals, MayUseRuns
from .serializers import (
    AnswerRequest,
    ApprovalSerializer,
    ApproveRequest,
    EmptyRequest,
    RejectRequest,
    RunDetailSerializer,
    RunSerializer,
    SettleRequest,
    StartRequest,
)


class AnvilViewSet(GenericViewSet[Any]):
    """What all our views have in common.

    Who somebody is, the host's authentication classes say. All else is set here, since the host's defaults
    are made for its own views: they may let anybody in, cut off whoever polls a run, or rename keys.
    """

    parser_classes = (JSONParser,)
    renderer_classes = (JSONRenderer,)
    pagination_class = NewestFirst
    throttle_classes = ()
    versioning_class = None
    # A value that is no id at all is answered as one that is not stored, in our own shape.
    lookup_value_regex = "[^/]+"
    request_serializers: dict[str, type[BaseSerializer[Any]]] = {}
    """What the body of each action that takes one may hold."""

    def get_exception_handler(self) -> Callable[..., Response | None]:
        """Problem details, also where the host's own API answers errors otherwise."""
        return problems.handle

    def get_renderers(self) -> list[BaseRenderer]:
        """JSON, and the browsable API where the host has it."""
        browsable = [r for r in self.settings.DEFAULT_RENDERER_CLASSES if issubclass(r, BrowsableAPIRenderer)]
        return [*super().get_renderers(), *(renderer() for renderer in browsable)]

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Name the media type of a problem, and keep private data out of caches."""
        response = super().finalize_response(request, response, *args, **kwargs)
        if response.exception and isinstance(response.accepted_renderer, JSONRenderer):
            response.content_type = problems.CONTENT_TYPE
        add_never_cache_headers(response)
        return response

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        """The request's, where the action takes a body."""
        return self.request_serializers.get(self.action) or super().get_serializer_class()

    def get_serializer_context(self) -> dict[str, Any]:
        """With the groups of the caller, fetched when first asked for and once for all rows of an answer."""
        return {**super().get_serializer_context(), "groups": cache(lambda: groups_of(self.request.user))}

    def checked(self, request: Request) -> dict[str, Any]:
        """The body of the request.

        Raises:
            ValidationError: It has an unknown field or a value of the wrong type.
        """
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


class RunViewSet(mixins.ListModelMixin, AnvilViewSet):
    """Start, watch and steer runs."""

    permission_classes = (IsAuthenticated, MayUseRuns)
    filter_backends = (RunFilter,)
    serializer_class = RunSerializer
    request_serializers = {
        "create": StartRequest,
        "metadata": StartRequest,
        "cancel": EmptyRequest,
        "pause": EmptyRequest,
        "resume": EmptyRequest,
    }
    lookup_field = "run_id"

    def get_queryset(self) -> QuerySet[Run]:
        """The runs this person may see; without large columns that are not shown."""
        return Run.objects.visible_to(self.request.user).defer("container", "limits")

    def get_object(self) -> Run:
        """The run of the URL.

        Raises:
            UnknownRunError: There is none that this person may see.
        """
        run_id = self.kwargs["run_id"]
        try:
            run = self.get_queryset().filter(run_id=check_run_id(run_id)).first()
        except BadInputError:
            run = None
        if run is None:
            raise UnknownRunError(run_id)
        self.check_object_permissions(self.request, run)
        return run

    def create(self, request: Request) -> Response:
        """Start a run; the same request again, by run_id or ``Idempotency-Key``, gives the same run."""
        body = self.checked(request)
        run, created = runs.get_or_start(
            body["agent"],
            body["input"],
            user=request.user,
            run_id=body.get("run_id"),
            idempotency_key=request.headers.get("Idempotency-Key"),
            metadata=body.get("metadata"),
        )
        response = self._answer(run, status.HTTP_201_CREATED if created else status.HTTP_200_OK)
        response["Location"] = response.data["links"]["self"]
        return response

    def retrieve(self, request: Request, run_id: str) -> Response:
        """Where a run stands."""
        return self._answer(self.get_object())

    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, run_id: str) -> Response:
        """End a run; one that a worker is advancing ends at its next step."""
        return self._steer(partial(runs.cancel, by=name_of(request.user)))

    @action(detail=True, methods=["post"])
    def pause(self, request: Request, run_id: str) -> Response:
        """Stop a run until it is resumed."""
        return self._steer(partial(runs.pause, by=name_of(request.user)))

    @action(detail=True, methods=["post"])
    def resume(self, request: Request, run_id: str) -> Response:
        """Have a paused or failed run go on."""
        return self._steer(partial(runs.resume, by=name_of(request.user)))

    def _steer(self, change: Callable[[str], Run]) -> Response:
        run = self.get_object()
        self.checked(self.request)
        return self._answer(change(run.run_id))

    def _answer(self, run: Run, code: int = status.HTTP_200_OK) -> Response:
        serializer = RunDetailSerializer(run, context=self.get_serializer_context())
        return Response(serializer.data, status=code)


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

    def get_queryset(self) -> QuerySet[Approval]:
        """All approvals, with what is shown of each and without the large columns that are not."""
        shown = Approval.objects.select_related("run", "call").prefetch_related("decisions")
        return shown.defer("call__result", "run__container", "run__limits", "run__metadata")

    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Say yes, as the authenticated user."""
        return self._decide(approvals.approve)

    @action(detail=True, methods=["post"])
    def reject(self, request: Request, pk: str) -> Response:
        """Say no, as the authenticated user, and tell the agent why."""
        return self._decide(approvals.reject)

    @action(detail=True, methods=["post"])
    def answer(self, request: Request, pk: str) -> Response:
        """Give the result in the tool's place."""
        return self._decide(approvals.answer)

    @action(detail=True, methods=["post"])
    def settle(self, request: Request, pk: str) -> Response:
        """Say what became of a call in doubt."""
        return self._decide(approvals.settle)

    @action(detail=True, methods=["post"])
    def claim(self, request: Request, pk: str) -> Response:
        """Keep others from deciding the case while the caller reads it."""
        return self._change(approvals.claim)

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
