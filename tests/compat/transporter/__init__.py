"""The rows of transporter's checklist that named consumers keep."""
