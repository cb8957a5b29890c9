"""The console's connection to an aggregator: requests, events, and the reasons of refusals.

Code that sends requests as an operator belongs in this package. Commands, and the tables that show
answers, do not.
"""
