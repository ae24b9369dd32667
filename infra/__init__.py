"""The deployed feed as CloudFormation: a CDK application over `tidings.aws.config.deployment`."""
