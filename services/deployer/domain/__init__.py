"""What the deployer decides: rules, plans, renderings and states. Pure.

Read next: plan.py.
"""
