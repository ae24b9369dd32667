"""
Events of API Gateway, Lambda and EventBridge become requests of the core, and what it answers
becomes responses and invocations.
"""
