"""The description of all routes, `/openapi.json`, from the table of `routes`."""
