"""Cost control: tags of every resource, which attribute the bill, and a budget."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_budgets as budgets
from constructs import Construct

from infra.settings import Stage
from tidings.aws.config.stages import COMPONENT_TAG, EXPIRES_TAG, STAGE_TAG, stack_name

# Percent of the budget: actual spending, and AWS's forecast for the month.
NOTIFIED = (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))


def guard(stack: cdk.Stack, stage: Stage) -> None:
    """Tag all of *stack*, by stage and by top-level construct; add the stage's budget."""
    tags = {STAGE_TAG: stage.name} | ({EXPIRES_TAG: stage.expires} if stage.expires else {})
    for name, value in tags.items():
        cdk.Tags.of(stack).add(name, value)
        stack.add_stack_tag(name, value)  # of the stack itself
    for part in stack.node.children:
        cdk.Tags.of(part).add(COMPONENT_TAG, part.node.id)
    if stage.budget_dollars is not None and stack.stack_name == stack_name(stage.name):
        Budget(stack, "Budget", stage=stage, dollars=stage.budget_dollars)


class Budget(Construct):
    """
    A monthly budget of all resources with the tag of *stage*, which must be a cost allocation tag.

    Without addresses (`alarm_mail`) it sends no notifications.
    """

    def __init__(self, scope: Construct, name: str, *, stage: Stage, dollars: int) -> None:
        super().__init__(scope, name)
        mailed = [
            budgets.CfnBudget.SubscriberProperty(address=each, subscription_type="EMAIL")
            for each in stage.alarm_mail
        ]
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                # Budgets belong to an account: a stage of another Region has one, too.
                budget_name=f"{stack_name(stage.name)}-{cdk.Aws.REGION}",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=dollars, unit="USD"),
                cost_filters={
                    "TagKeyValue": [f"user:{STAGE_TAG}${stage.name}"],
                    "Region": [cdk.Aws.REGION],
                },
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        comparison_operator="GREATER_THAN",
                        notification_type=kind,
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=mailed,
                )
                for kind, percent in (NOTIFIED if mailed else ())
            ],
        )
