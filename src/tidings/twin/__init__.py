"""
The local twin: the deployed functions on one machine, without an AWS account.

It emulates the services around the functions and nothing inside them. `command` is the command
line, `twin` starts and stops every part, `running` runs a twin in a subprocess for tests and
benchmarks.

    store    DynamoDB Local: fetched, started, stopped; the tables of the blueprint
    lambdas  worker processes under awslambdaric, the Lambda APIs, the streaming function, schedules
    gateway  the public port with the HTTP and WebSocket APIs; the internal port for the functions
    streams  event source mappings: readers of streams, batches, retries, failure destinations
    demo     the history of a git repository as a feed; without one, invented events
"""
