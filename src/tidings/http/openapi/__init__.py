"""The OpenAPI description of all routes, `/openapi.json`, generated from the table in `routes`."""
