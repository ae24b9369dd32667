"""
The values that everything else is made of: operations, pages, cursors, filters, events.

They are parsed, checked and encoded here, and nothing here reads or writes.
"""
