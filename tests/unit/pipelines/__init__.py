"""Pipelines: transporter's rows of functions and stores."""
