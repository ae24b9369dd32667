"""
Conversion of events of API Gateway, Lambda and EventBridge to requests of the core, and of the
core's answers to responses and invocations.
"""
