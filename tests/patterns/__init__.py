"""Defects that change feeds share, each looked for in every kind of consumer."""
