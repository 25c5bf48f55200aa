"""The runs: start, list, read and steer. No rule lives here: each endpoint hands a checked request on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db.models import QuerySet
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from .. import agents, runs
from ..errors import BadInputError, UnknownRunError
from ..identity import check_run_id
from ..models import Run
from ..reviewers import name_of
from .base import AnvilViewSet, Limits
from .bodies import EmptyRequest, ForkRequest, SayRequest, StartRequest
from .events import EventsMixin
from .history import HistoryMixin
from .lists import ORDERINGS, RunFilter, RunQuery
from .permissions import MayUseRuns
from .schema import documented
from .serializers import RunDetailSerializer, RunSerializer
from .throttles import StartThrottle

IDEMPOTENCY_KEY = {
    "Idempotency-Key": "Your own name for this request, of 1 to 200 characters: sent again with the same "
    "body it gives the same run."
}
MESSAGE_KEY = {
    "Idempotency-Key": "Your own name for this message, of 1 to 200 characters: sent again with the same "
    "body the run gets it once."
}
steering = documented({200: RunDetailSerializer}, body=EmptyRequest, problems=(404, 409))


class RunViewSet(HistoryMixin, EventsMixin, mixins.ListModelMixin, AnvilViewSet):
    """Start, watch and steer runs."""

    permission_classes = (IsAuthenticated, MayUseRuns)
    filter_backends = (RunFilter,)
    serializer_class = RunSerializer
    request_serializers = {
        "create": StartRequest,
        "metadata": StartRequest,
        "say": SayRequest,
        "fork": ForkRequest,
        "cancel": EmptyRequest,
        "pause": EmptyRequest,
        "resume": EmptyRequest,
        "retry": EmptyRequest,
    }
    limited_by: Limits = dict.fromkeys(("create", "say", "fork", "resume", "retry"), StartThrottle)
    lookup_field = "run_id"
    orderings = ORDERINGS

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

    @documented({200: RunSerializer(many=True)}, query=RunQuery, problems=(422,))
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The runs that the caller may see, in pages."""
        return super().list(request, *args, **kwargs)

    @documented(
        {201: RunDetailSerializer, 200: RunDetailSerializer},
        body=StartRequest,
        headers=IDEMPOTENCY_KEY,
        problems=(409,),
    )
    def create(self, request: Request) -> Response:
        """Start a run; the same request again, by run_id or ``Idempotency-Key``, gives the same run."""
        body = self.checked(request)
        run, created = runs.get_or_start(
            agents.get_startable(request.user, body["agent"]),
            body["input"],
            user=request.user,
            run_id=body.get("run_id"),
            idempotency_key=request.headers.get("Idempotency-Key"),
            metadata=body.get("metadata"),
        )
        return self._located(run, status.HTTP_201_CREATED if created else status.HTTP_200_OK)

    @documented({200: RunDetailSerializer}, problems=(404,))
    def retrieve(self, request: Request, run_id: str) -> Response:
        """Where a run stands, why it waits, and what came out of it."""
        return self._answer(self.get_object())

    @steering
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, run_id: str) -> Response:
        """End a run; one that a worker is advancing ends at its next step."""
        return self._steer(partial(runs.cancel, by=name_of(request.user)))

    @steering
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, run_id: str) -> Response:
        """Stop a run until it is resumed."""
        return self._steer(partial(runs.pause, by=name_of(request.user)))

    @steering
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, run_id: str) -> Response:
        """Have a paused or failed run go on; a finished one is left as it is."""
        return self._steer(partial(runs.resume, by=name_of(request.user)))

    @steering
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, run_id: str) -> Response:
        """Have a failed run go on from its last stored step; any other is refused."""
        return self._steer(partial(runs.retry, by=name_of(request.user)))

    @documented({201: RunDetailSerializer}, body=ForkRequest, problems=(404, 409))
    @action(detail=True, methods=["post"])
    def fork(self, request: Request, run_id: str) -> Response:
        """Start a new run from a run that has ended, as it was after one of its iterations."""
        parent, body = self.get_object(), self.checked(request)
        agents.get_startable(request.user, parent.agent)
        run = runs.fork(
            parent.run_id,
            iteration=body.get("iteration"),
            message=body.get("message"),
            user=request.user,
            new_id=body.get("run_id"),
            metadata=body.get("metadata"),
        )
        return self._located(run, status.HTTP_201_CREATED)

    @HistoryMixin.messages.mapping.post
    @documented(
        {200: RunDetailSerializer, 202: RunDetailSerializer},
        body=SayRequest,
        headers=MESSAGE_KEY,
        problems=(404, 409),
    )
    def say(self, request: Request, run_id: str) -> Response:
        """Send a further message: a run that has ended goes on with it (200).

        For a live run it waits until there is a place for it (202): after the results of the turn under way.
        """
        run, body = self.get_object(), self.checked(request)
        run, placed = runs.deliver(
            run.run_id,
            body["content"],
            by=name_of(request.user),
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return self._answer(run, status.HTTP_200_OK if placed else status.HTTP_202_ACCEPTED)

    def _steer(self, change: Callable[[str], Run]) -> Response:
        run = self.get_object()
        self.checked(self.request)
        return self._answer(change(run.run_id))

    def _answer(self, run: Run, code: int = status.HTTP_200_OK) -> Response:
        serializer = RunDetailSerializer(run, context=self.get_serializer_context())
        return Response(serializer.data, status=code)

    def _located(self, run: Run, code: int) -> Response:
        response = self._answer(run, code)
        response["Location"] = response.data["links"]["self"]
        return response
