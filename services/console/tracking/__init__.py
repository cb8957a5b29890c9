"""`rampart track`: copies runs to common experiment trackers, such as MLflow.

`Tracker` is the interface; the calls of its methods follow the course of a run. There is one module
per tracker. A tracker's library is imported only when the tracker is used.

Code that shows a run to people, such as the live table, belongs in `console` itself.
"""
