#!/bin/sh
# The Lambda Web Adapter starts this script, waits for the port, and then sends requests to it.
exec python -m uvicorn handler:app --host 127.0.0.1 --port "$AWS_LWA_PORT" \
    --lifespan off --no-access-log
