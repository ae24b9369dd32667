"""The WebSocket API: every WebSocket route of the blueprint, and the way back to its clients."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from constructs import Construct
from tidings.aws.config import deployment

from infra.names import SOCKET_STAGE
from infra.parts.function import TidingsFunction
from infra.parts.logs import SOCKET_FIELDS, AccessLog
from infra.settings import Stage

METHODS = ("POST", "DELETE")  # send a message, cut a connection
_SELECTED = "$default"  # the one template there is, whatever the message
_TAKEN = '{"statusCode":200}'  # without it API Gateway tells the client of an error


class FeedSocketApi(Construct):
    """
    The API and its one stage; `connect` adds the routes once the functions exist.

    The functions need its address, and it needs the functions: hence two steps. Everybody may
    connect; who subscribes says the feed's password, since a browser can send no header here.
    """

    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        self.api = apigateway.WebSocketApi(self, "Api", api_name=f"tidings-{stage.name}-sockets")
        self.stage = stage
        self.deployed = apigateway.WebSocketStage(
            self,
            "Stage",
            web_socket_api=self.api,
            stage_name=SOCKET_STAGE,
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=stage.requests_per_s, burst_limit=stage.burst
            ),
            access_log_settings=AccessLog(
                self,
                "Logs",
                stage,
                path=f"/aws/apigateway/tidings-{stage.name}-sockets",
                fields=SOCKET_FIELDS,
            ),
            detailed_metrics_enabled=stage.all_metrics,
        )
        self.url = self.deployed.url
        self.callback_url = self.deployed.callback_url

    @property
    def connection_arns(self) -> list[str]:
        """Every connection of this stage; API Gateway has nothing narrower than its id."""
        stack = cdk.Stack.of(self)
        return [
            stack.format_arn(
                service="execute-api",
                resource=self.api.api_id,
                resource_name=f"{SOCKET_STAGE}/{method}/@connections/*",
            )
            for method in METHODS
        ]

    def connect(self, functions: Mapping[str, TidingsFunction]) -> None:
        """Route every key of the blueprint to its function, or to nobody."""
        for route in deployment.SOCKET_ROUTES:
            if route.function:
                self._route(route.key, functions[route.function])
            else:
                self._take(route.key)

    def _route(self, key: str, target: TidingsFunction) -> None:
        self.api.add_route(
            key,
            integration=integrations.WebSocketLambdaIntegration(
                f"{target.node.id}Integration", target.live
            ),
        )

    def _take(self, key: str) -> None:
        """A route without a route response sends nothing back."""
        self.api.add_route(
            key,
            integration=integrations.WebSocketMockIntegration(
                f"{key}Integration",
                request_templates={_SELECTED: _TAKEN},
                template_selection_expression=f"\\{_SELECTED}",
            ),
        )
