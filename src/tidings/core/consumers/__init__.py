"""Named consumers: their positions, leases, acknowledgements, retries and parked messages."""
