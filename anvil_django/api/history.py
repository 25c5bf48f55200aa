"""What is stored of a run: its messages, its tool calls, and the whole as a checkpoint."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from .. import redaction
from ..conf import get_settings
from ..models import Run, ToolCall
from ..stores import DjangoStateStore
from ..stores.pages import read_messages
from .lists import OldestFirst, asked
from .schema import documented
from .serializers import CallSerializer, CheckpointSerializer, MessagePageSerializer

SEE_ALL = "anvil_django.view_run"
MOST = 500


class MessageQuery(serializers.Serializer[Any]):
    """Where the history is read from, and how much of it."""

    after = serializers.IntegerField(
        default=-1, min_value=-1, max_value=2**31 - 2, help_text="Number of the last message you have."
    )
    limit = serializers.IntegerField(required=False, min_value=1, max_value=MOST)


class HistoryMixin:
    """The parts of a run that only grow."""

    get_object: Any
    get_serializer_context: Any

    @documented({200: MessagePageSerializer}, query=MessageQuery, problems=(404, 422))
    @action(detail=True, methods=["get"])
    def messages(self, request: Request, run_id: str) -> Response:
        """The messages as they are sent to the model, oldest first."""
        run, query = self.get_object(), asked(MessageQuery, request)
        first = query["after"] + 1
        found = read_messages(run, first, query.get("limit") or get_settings().page_size)
        onward = None
        if found and found[-1].seq + 1 < run.message_count:
            onward = replace_query_param(request.build_absolute_uri(), "after", found[-1].seq)
        return Response(MessagePageSerializer({"next": onward, "results": found}).data)

    @documented({200: CallSerializer(many=True)}, problems=(404, 422))
    @action(detail=True, methods=["get"], pagination_class=OldestFirst, filter_backends=())
    def calls(self, request: Request, run_id: str) -> Response:
        """The tool calls and what became of each, oldest first."""
        run = self.get_object()
        calls = ToolCall.objects.filter(run=run).exclude(effect="limit").prefetch_related("approvals")
        paginator = OldestFirst()
        page: Any = paginator.paginate_queryset(calls, request)
        return paginator.get_paginated_response(CallSerializer(page, many=True).data)

    @documented({200: CheckpointSerializer}, problems=(404,))
    @action(detail=True, methods=["get"])
    def checkpoint(self, request: Request, run_id: str) -> Response:
        """The whole state of a run, as ``AgentCheckpoint.from_dict`` takes it.

        It is as large as the whole history; read ``messages`` in pages instead where that is enough. The
        system prompt and the tools are the site's own: without the permission ``view_run`` ``prefix`` is
        empty. Where ``ANVIL["REDACT"]`` hides anything, ``redacted`` is true and no run can go on with it.
        """
        run: Run = self.get_object()
        checkpoint = DjangoStateStore().load(run.run_id)
        data = {} if checkpoint is None else redaction.shown_checkpoint(checkpoint.to_dict())
        if not request.user.has_perm(SEE_ALL):
            data["prefix"] = {}
        return Response(data)
