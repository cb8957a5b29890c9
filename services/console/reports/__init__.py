"""Reports about the runs of a federation: comparisons, exports and histories.

The functions here read from a running federation, and do not change it.

HTML pages with charts belong in `html_report`; code that copies runs to experiment trackers belongs
in `tracking`.
"""
