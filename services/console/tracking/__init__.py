"""`rampart track`: copies runs to common experiment trackers, such as MLflow.

`Tracker` is the interface; its methods are called in the order of a run. There is one module per
tracker. A tracker's library is imported only when the tracker is used.

Code that follows a run for people, such as the live table, belongs in `console` itself.
"""
