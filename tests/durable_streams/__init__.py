"""The suite that Durable Streams has for servers, run against ours."""
