"""Change feeds for Triton's listeners and publishers: registrations and items."""
