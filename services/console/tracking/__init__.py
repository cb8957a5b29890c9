"""`rampart track`: copies runs to common experiment trackers, such as MLflow.

Every tracker has the interface `Tracker`, whose methods are called at the start of a run, in each
round, and at the end of the run. There is one module per tracker. A tracker's library is imported
only when the tracker is used.

Code that shows a run to people, such as the live table, belongs in `console` itself.
"""
