"""The wire over HTTP: routes, requests and answers, streams, and the description of all of it."""
