"""
The base of all adapters: AWS clients, the clock, telemetry, threads, and the translation of AWS
errors.
"""
