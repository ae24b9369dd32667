"""
`make sandbox`: a stage for an hour, and what it showed.

Steps, each of which shows one thing, are run against a stage that is deployed for them and taken
away behind them. What each showed, and what could not be run, is the report
(docs/operations/SANDBOX.md).
"""
