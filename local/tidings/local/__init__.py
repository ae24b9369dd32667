"""
The local twin: the deployed functions on one machine, without an AWS account.

It emulates what lies around the functions and nothing inside them:

    command.py              the command line
    options.py              what it can say
    problems.py             what the operator is told in one sentence
    twin.py                 composition root: starts and ends everything below
    running.py              a twin in a subprocess, for tests and benchmarks

    store/dynamodb_local.py the store: fetch, start, stop
    store/engine.py         boto3 clients of the store
    store/tables.py         the tables of the blueprint
    environment.py          the environment of a deployed function
    installed.py            where the handlers and the live page are
    lambdas/workers.py      worker processes under awslambdaric, a pool per function
    lambdas/runtime_api.py  the Lambda Runtime API that one worker talks to (runtime_client.py)
    lambdas/stream_function.py the streaming function's server (upstream.py: the way to it)

    gateway/public_server.py the public port: HTTP and WebSocket (asgi.py: what both share)
    gateway/visitors.py     who may come to it
    gateway/http_gateway.py the HTTP API (http_events.py: its events)
    console_files.py        the live page
    gateway/socket_gateway.py the WebSocket API (socket_events.py: its events)

    gateway/internal_apis.py the loopback port that functions call (loopback.py: its server)
    lambdas/lambda_api.py   the Lambda Invoke API
    gateway/connections_api.py `@connections`

    streams/poller.py       event source mappings
    streams/reader.py       one look at a stream
    streams/batches.py      what follows a failure
    streams/records.py      events and the failure destination
    lambdas/schedules.py    EventBridge Scheduler

    processes.py            children that cannot outlive the twin
    gateway/listening.py    ports
    clock.py                the time and new ids

    demo/demo.py            a git repository's history as a feed (git_repository.py reads it), or
                            without one what is `made_up.py`
"""
