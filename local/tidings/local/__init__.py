"""
The local twin: the deployed functions on one machine, without an AWS account.

It emulates what lies around the functions and nothing inside them:

    command.py              the command line
    options.py              what it can say
    problems.py             what the operator is told in one sentence
    twin.py                 composition root: starts and ends everything below
    running.py              a twin in a subprocess, for tests and benchmarks

    dynamodb_local.py       the store: fetch, start, stop
    engine.py               boto3 clients of the store
    tables.py               the tables of the blueprint
    environment.py          the environment of a deployed function
    installed.py            where the handlers and the live page are
    workers.py              worker processes under awslambdaric, a pool per function
    runtime_api.py          the Lambda Runtime API that one worker talks to (runtime_client.py)
    stream_function.py      the streaming function's server (upstream.py: the way to it)

    public_server.py        the public port: HTTP and WebSocket (asgi.py: what both share)
    visitors.py             who may come to it
    http_gateway.py         the HTTP API (http_events.py: its events)
    console_files.py        the live page
    socket_gateway.py       the WebSocket API (socket_events.py: its events)

    internal_apis.py        the loopback port that functions call (loopback.py: its server)
    lambda_api.py           the Lambda Invoke API
    connections_api.py      `@connections`

    stream_poller.py        event source mappings
    stream_reader.py        one look at a stream
    stream_batches.py       what follows a failure
    stream_records.py       events and the failure destination
    schedules.py            EventBridge Scheduler

    processes.py            children that cannot outlive the twin
    listening.py            ports
    clock.py                the time and new ids

    demo.py                 a git repository's history as a feed (git_repository.py reads it), or
                            without one what is `made_up.py`
"""
