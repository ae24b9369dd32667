"""
What every adapter stands on: clients of AWS, the clock, telemetry, threads, and how errors of AWS
are translated.
"""
