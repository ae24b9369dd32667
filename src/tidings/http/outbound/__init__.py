"""
What is asked outside of a deployment:

another feed, an issuer of tokens, webhooks, a folder for the archive; and bcrypt.
"""
