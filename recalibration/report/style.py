"""The report's style sheet: colours as variables, once for light and once for dark. Checked for contrast."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--bg:#fbfbfa;--panel:#fff;--ink:#1c2126;--soft:#5b6670;--line:#dfe3e6;--use:#2f6f9f;--guess:#a9c8de;
--now:#5b6670;--then:#0b7a5e;--hot:#a8480f;--warn-bg:#fdf1e4}
@media (prefers-color-scheme:dark){:root{--bg:#14181b;--panel:#1c2226;--ink:#e6eaed;--soft:#9aa6af;
--line:#333c42;--use:#5aa2d6;--guess:#2c4f68;--now:#9aa6af;--then:#3fc79d;--hot:#e98a4f;--warn-bg:#3a2a1c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif;
overflow-wrap:anywhere}
main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;margin:0 0 4px}
h2{font-size:19px;margin:36px 0 6px}
h3{font-size:15px;margin:14px 0 2px}
small,p{color:var(--soft)}
p{margin:4px 0 10px}
a{color:var(--use)}
code{font:13px/1.4 ui-monospace,monospace}
.warn{color:var(--hot)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px;margin:18px 0}
.tile{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tile b{display:block;font-size:22px;line-height:1.3}
.tile span{color:var(--soft);font-size:13px}
.tile.warn{background:var(--warn-bg)}
.tile.warn b{color:var(--hot)}
.wide{overflow-x:auto}
.wide table{min-width:640px}
table{border-collapse:collapse;width:100%;background:var(--panel);border:1px solid var(--line)}
th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere;max-width:420px}
.wide :is(th,td):not(.num){min-width:9.5em}
.wide td:not(:first-child)>code{white-space:nowrap}
th{font-size:13px;color:var(--soft);font-weight:600}
.num{text-align:right;white-space:nowrap;overflow-wrap:normal;font-variant-numeric:tabular-nums}
details{background:var(--panel);border:1px solid var(--line);border-radius:8px;margin:6px 0;padding:0 14px}
details[open]{padding-bottom:12px}
summary{cursor:pointer;padding:8px 0}
summary span{color:var(--soft);font-size:13px}
summary .badge,.badge{color:var(--hot);border:1px solid var(--hot);border-radius:9px;padding:0 8px;
font-size:12px}
.plot svg{min-width:600px}
@media (max-width:640px){main{padding:16px 12px 40px}h1{font-size:22px}
.wide th:first-child,.wide td:first-child{position:sticky;left:0;background:var(--panel);max-width:45vw}}
svg{display:block;max-width:720px;width:100%;height:auto}
svg.pair{width:302px;max-width:302px;height:25px}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}
rect.u{fill:var(--use)}
rect.g{fill:var(--guess);stroke:var(--use);stroke-dasharray:2 2}
rect.t{fill:var(--hot)}
rect.n{fill:var(--now)}
path{fill:none;stroke-width:1}
path.l{stroke:var(--line)}
path.a{stroke:var(--soft)}
path.n{stroke:var(--now);stroke-width:2;stroke-dasharray:5 4}
path.p{stroke:var(--then);stroke-width:2}
path.r{stroke:var(--hot);stroke-width:2}
.key::before{content:"";display:inline-block;width:11px;height:11px;margin-right:4px;background:var(--use)}
.key{margin-right:5px;white-space:nowrap}
.key.n::before{background:var(--now)}
.key.g::before{background:var(--guess);outline:1px dashed var(--use)}
.key.t::before,.key.r::before{background:var(--hot)}
.key.r::before{width:3px}
:target{outline:2px solid var(--use)}
@media print{details{break-inside:avoid}}
"""
