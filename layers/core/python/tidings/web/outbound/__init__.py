"""
What is asked outside of a deployment:

another feed, an issuer of tokens, webhooks; and bcrypt.
"""
