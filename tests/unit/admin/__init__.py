"""The operator's commands, against tables, a server and one twin."""
