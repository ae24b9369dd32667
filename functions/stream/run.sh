#!/bin/sh
# Started by the Lambda Web Adapter, which waits for the port and then passes requests on.
exec python -m uvicorn handler:app --host 127.0.0.1 --port "$AWS_LWA_PORT" \
    --lifespan off --no-access-log
