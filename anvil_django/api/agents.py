"""The agents that the caller may start."""

from __future__ import annotations

from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import NotFound
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from .. import agents
from ..errors import UnknownAgentError
from .base import AnvilViewSet
from .schema import documented
from .serializers import AgentListSerializer, AgentSerializer


class AgentViewSet(AnvilViewSet):
    """Read which agents there are; those one may not start are as if they were none."""

    permission_classes = (IsAuthenticated,)
    serializer_class = AgentSerializer
    lookup_field = "name"

    @documented({200: AgentListSerializer})
    def list(self, request: Request) -> Response:
        """The agents that the caller may start, by name."""
        found = {"results": agents.startable(request.user)}
        return Response(AgentListSerializer(found, context=self.get_serializer_context()).data)

    @documented({200: AgentSerializer}, problems=(404,))
    def retrieve(self, request: Request, name: str) -> Response:
        """What an agent is for and what its runs may use."""
        for agent in agents.startable(request.user):
            if agent.name == name:
                return Response(
                    AgentSerializer(agent, context=self.get_serializer_context()).data, status.HTTP_200_OK
                )
        sentence = _("There is no agent %(name)r that you may start.") % {"name": name}
        raise NotFound(sentence, UnknownAgentError.code)
