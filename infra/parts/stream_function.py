"""
A function that answers by response streaming: an ASGI app behind AWS's Lambda Web Adapter.

Lambda streams natively only from Node.js. The adapter's layer starts `run.sh` (uvicorn), passes
each invocation on as an HTTP request and streams the answer to the function URL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from tidings.aws.config import deployment

from infra.names import STREAM_HANDLER
from infra.parts.function import TidingsFunction
from infra.settings import Stage

PORT = 8080
ADAPTER_ACCOUNT = "753240598075"  # AWS's, for all commercial regions
ADAPTER_LAYER = "LambdaAdapterLayerArm64"
ADAPTER_VERSION = 27  # its release 1.0.0

ADAPTER_ENVIRONMENT = {
    "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
    "AWS_LWA_INVOKE_MODE": "response_stream",
    "AWS_LWA_PORT": str(PORT),
    # An HTTP check would open a feed; the app is ready when its port is.
    "AWS_LWA_READINESS_CHECK_PROTOCOL": "tcp",
    # The adapter starts a plain Python: nothing but this tells it of the layers.
    "PYTHONPATH": "/opt/python:/var/runtime",
}


class StreamFunction(TidingsFunction):
    """
    `url` is where its routes are served. The app asks for the feed's password, and answers
    preflights: were CORS configured here too, an answer would carry its header twice.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        function: deployment.Function,
        layers: Sequence[lambda_.ILayerVersion],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(
            scope,
            name,
            stage=stage,
            function=function,
            layers=[*layers, _adapter(scope, f"{name}Adapter")],
            environment={**environment, **ADAPTER_ENVIRONMENT},
            handler=STREAM_HANDLER,
            concurrency_max=stage.streams_max if function.endless else None,
        )
        self.url = self.function.add_function_url(
            auth_type=lambda_.FunctionUrlAuthType.NONE,
            invoke_mode=lambda_.InvokeMode.RESPONSE_STREAM,
        )


def _adapter(scope: Construct, name: str) -> lambda_.ILayerVersion:
    layer = f"layer:{ADAPTER_LAYER}:{ADAPTER_VERSION}"
    arn = f"arn:{cdk.Aws.PARTITION}:lambda:{cdk.Aws.REGION}:{ADAPTER_ACCOUNT}:{layer}"
    return lambda_.LayerVersion.from_layer_version_arn(scope, name, arn)
