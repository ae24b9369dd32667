"""One construct per capability; `infra.stack` puts them together."""
