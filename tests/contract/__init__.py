"""What every store keeps to, on every engine."""
