"""The style sheet of reports, for light and dark screens and for print."""

LIGHT = """
  --paper: #ffffff; --ink: #1b1f24; --soft: #5b6470; --rule: #d9dee4; --tint: #f4f6f8;
  --one: #1f6fb2; --two: #c2410c; --three: #0f766e;
  --four: #7c3aed; --five: #a16207; --six: #be185d;
  --bad: #b42318; --warn: #b45309; --good: #4b9560; --away: #98a2b3;
  --h0: 178, 34, 24; --h1: 25, 120, 60;
"""
DARK = """
  --paper: #14171b; --ink: #e6e9ed; --soft: #9aa4b1; --rule: #323a43; --tint: #1c2127;
  --one: #6db3f2; --two: #fb923c; --three: #5ccabb;
  --four: #b79cfc; --five: #e3b341; --six: #f472b6;
  --bad: #f97066; --warn: #f2a03d; --good: #57a870; --away: #667085;
  --h0: 249, 112, 102; --h1: 87, 190, 120;
"""
HEAT = "".join(
    f".heat{n} {{ background: rgba(var(--h{int(n >= 5)}), {abs(n - 5) * 0.09:.2f}); }}\n"
    for n in range(11)
)
"""Colours of a table's cells, from 0 (bad for the defence) to 10 (good for the defence)."""
RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 60rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
header p, .note { color: var(--soft); }
.kind { margin: 0; font-size: .8rem; letter-spacing: .08em; text-transform: uppercase; }
.warning { border-left: 3px solid var(--warn); padding-left: .8rem; }
code, pre { font: .82rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  overflow-wrap: anywhere; }
pre { white-space: pre-wrap; background: var(--tint); padding: .8rem 1rem; border-radius: 6px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem;
  margin: 1.4rem 0 0; }
.tiles div { background: var(--tint); border-radius: 6px; padding: .6rem .9rem; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; }
.tiles dd { font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.facts { margin: .6rem 0; } .facts div { display: flex; gap: 1rem; padding: .15rem 0; }
.facts dt { flex: 0 0 11rem; font-size: inherit; } .facts dd { flex: 1; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; margin: .4rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; } tbody th { color: var(--ink); font-weight: 400; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.name { overflow-wrap: anywhere; min-width: 5.5rem; } td.reason { min-width: 18rem; }
svg { display: block; width: 100%; min-width: 36rem; height: auto; margin: .4rem 0; }
svg text { font-size: 12px; fill: var(--soft); } svg text.row { font-size: 11px; }
.grid { stroke: var(--rule); stroke-width: 1; }
.mark { stroke: var(--bad); stroke-width: 1; stroke-dasharray: 3 4; }
.line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; }
.dot { fill: currentColor; }
.band { fill: currentColor; color: var(--one); opacity: .16; }
.one { color: var(--one); } .two { color: var(--two); } .three { color: var(--three); }
.four { color: var(--four); } .five { color: var(--five); } .six { color: var(--six); }
.barred { color: var(--bad); } .others { color: var(--away); stroke-width: 1; }
.limit { color: var(--ink); stroke-dasharray: 6 4; stroke-width: 1.4; }
.cell { fill: currentColor; } .accepted { color: var(--good); opacity: .55; }
.rejected { color: var(--warn); } .abstained { color: var(--four); }
.quarantined, .proposed { color: var(--six); } .evicted { color: var(--bad); }
.away { color: var(--away); opacity: .35; } .out { color: var(--bad); opacity: .15; }
.late { color: var(--five); opacity: .6; } .absent { color: var(--away); opacity: .2; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; margin: .2rem 0;
  padding: 0; font-size: .87rem; color: var(--soft); }
.key { display: inline-block; width: .9rem; height: .7rem; margin-right: .4rem;
  background: currentColor; border-radius: 2px; }
.heat { text-align: right; font-variant-numeric: tabular-nums; padding-right: .6rem;
  width: 9rem; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; }
  h2, h3 { break-after: avoid; } svg, tr { break-inside: avoid; } .wide { overflow: visible; }
  thead { display: table-header-group; } svg { min-width: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
@page { margin: 16mm; }
"""
STYLE = f""":root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
@media print {{ :root {{ color-scheme: light; {LIGHT} }} }}
{HEAT}{RULES}"""
