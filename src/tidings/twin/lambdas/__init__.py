"""The twin's Lambda: worker processes, their Runtime API, the Invoke API, schedules."""
