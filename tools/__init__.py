"""Programs that generate pages and images of this repository from its code and results.

- `architecture`, `catalogue`, `reference` and `state_machine` generate parts of pages from code.
- `reproduced` generates the page about the runs of the papers' tables.
- `screenshots` takes the screenshots of the operators' page.
- `imports` analyses the imports of modules.

The package is not part of the wheel, and only tests import it. Code that users run belongs in
`rampart_fl.services.console`, and measurements belong in `benchmarks`.
"""
