"""The twin's Lambda: worker processes, the Runtime API they talk to, the Invoke API, schedules."""
