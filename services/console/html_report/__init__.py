"""`rampart report`: one HTML file about a run, a matrix or a sweep, for an appendix or an audit.

The file needs no network and contains no script. The file's figures are inline SVG. Names and
metrics come from the clients. All text from a run is therefore untrusted, and the module `markup`
must escape it.

Code that reads or compares runs belongs in `reports` or `studies`.
"""
