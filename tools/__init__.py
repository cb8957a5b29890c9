"""Programs that generate pages and images of this repository, or check its text.

- `architecture`, `catalogue`, `reference` and `state_machine` generate parts of pages from code.
- `reproduced` generates the page that says which tables of the papers have been run.
- `screenshots` takes the screenshots of the operators' page.
- `imports` analyses the imports of modules.
- `sentences` draws sentences at random from code and pages, for a test with a reader.

The package is not part of the wheel, and only tests import it. Code that users run belongs in
`rampart_fl.services.console`, and measurements belong in `benchmarks`.
"""
