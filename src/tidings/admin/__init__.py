"""The commands for operators of deployed feeds: settings, credentials, state and archive."""
