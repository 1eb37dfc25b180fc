"use strict";
// Rows of the tables, as status_cells.py makes them. Names become text and attributes only; no markup is ever
// made of a string.
const UNITS = {UNITS};
const SI = [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"]];
const SPANS = [[3600000, "h"], [60000, "min"], [1000, "s"]];
const POINTS = 120, WIDTH = 120, HEIGHT = 28, NEAR = 0.8, JOINED = 3;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

// Elements ------------------------------------------------------------------------------------------------

function make(namespace, name, attributes, ...children) {
  const made = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== "") made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== ""));
  return made;
}
const h = (name, attributes, ...children) => make(null, name, attributes, ...children);
const svg = (name, attributes, ...children) => make(SVG, name, attributes, ...children);

function printable(name) {
  return name.replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (character) => {
    const code = character.codePointAt(0), named = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
    if (named) return named;
    const digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    return `\\${{ 2: "x", 4: "u", 8: "U" }[digits]}${code.toString(16).padStart(digits, "0")}`;
  });
}
const text = (name) => h("bdi", null, printable(name));
const label = (words) => words.split(/(?<=_)/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
const soft = (words) => h("span", { class: "soft" }, words);
const named = (name) => (name ? text(name) : soft("(none)"));
const tag = (kind, words) => h("span", { class: `tag ${kind}` }, words);
const none = () => soft("–");

// Figures -------------------------------------------------------------------------------------------------

const fixed = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const count = (value) => fixed(value, 0);
const percent = (share) => `${fixed(share * 100, 0)} %`;
const clock = (at) => at.slice(11, 19);

function amount(value, unit) {
  if (unit === "bytes per second") {
    for (const [factor, name] of SI) if (value >= factor) return `${fixed(value / factor, 2)} ${name}`;
    return `${count(value)} B/s`;
  }
  return `${value.toLocaleString("en-US", { maximumSignificantDigits: 4 })} ${UNITS[unit] || unit}`;
}

function used(value, unit) {
  if (unit !== "new producer ids per hour") return amount(value, unit);
  return `${value.toLocaleString("en-US", { maximumSignificantDigits: 4 })} ids`;
}

function duration(ms) {
  for (const [factor, name] of SPANS) if (ms >= factor) return `${fixed(ms / factor, 1)} ${name}`;
  return ms > 0 ? `${count(ms)} ms` : "";
}
const took = (ms) => duration(ms) || "0 ms";

// Rows ----------------------------------------------------------------------------------------------------

function row(key, head, cells) {
  const shown = cells.map(([name, ...children]) => h("td", { class: name }, ...children));
  return h("tr", { "data-key": key }, h("th", { scope: "row", class: "name" }, head), ...shown);
}

function bar(share, level) {
  const width = fixed(Math.min(100, share * 100), 0);
  return h("div", { class: "use" },
    svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "track", width: "100", height: "10" }),
      svg("rect", { class: `fill${level || ""}`, width, height: "10" })),
    h("span", null, percent(share)));
}

function use(one) {
  const over = one.utilisation > 1 || (one.delay_ms > 0 && !one.shadow);
  return bar(one.utilisation, over ? " over" : one.utilisation >= NEAR ? " near" : "");
}

function delayed(one) {
  if (!one.delayed_share_1m) return [none()];
  const part = one.delayed_share_1m >= 0.01 ? percent(one.delayed_share_1m) : "<1 %";
  return [part, " ", soft(`(${duration(one.delayed_s_1m * 1000)} in all)`)];
}

function throttle(one) {
  const waiting = one.waiting ? [" ", soft(`${count(one.waiting)} wait`)] : [];
  if (one.delay_ms <= 0) return [none(), ...waiting];
  const shown = duration(one.delay_ms);
  return [one.shadow ? tag("plain", `would be ${shown}`) : tag("bad", shown), ...waiting];
}

function curve(history, large) {
  const points = history.utilisation, seen = points.filter((point) => point !== null);
  const top = Math.max(1, ...seen) * 1.05;
  let line = "", last = -JOINED;
  points.forEach((point, number) => {
    if (point !== null) {
      const y = HEIGHT - 2 - ((HEIGHT - 4) * point) / top;
      line += `${number - last < JOINED ? "L" : "M"}${((number * WIDTH) / (POINTS - 1)).toFixed(1)} ${y.toFixed(1)}`;
      last = number;
    }
  });
  const limitY = (HEIGHT - 2 - (HEIGHT - 4) / top).toFixed(1);
  let marks = "";
  history.delay_ms.forEach((delay, number) => {
    if (delay) marks += `M${((number * WIDTH) / POINTS).toFixed(0)} ${HEIGHT}v-3h1v3z`;
  });
  return svg("svg", {
    class: `curve${large ? " large" : ""}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
    role: "img", "aria-label": told(history),
  }, svg("path", { class: "limit", d: `M0 ${limitY}H${WIDTH}` }),
  svg("path", { class: "line", d: line }), svg("path", { class: "held", d: marks }));
}

const drawn = (history) => [curve(history, true), h("p", { class: "note" }, told(history))];

function told(history) {
  const seen = history.utilisation.filter((point) => point !== null);
  const held = history.delay_ms.filter(Boolean).length;
  const span = `Last ${((POINTS * history.interval_s) / 60).toFixed(0)} minutes`;
  if (!seen.length) return `${span}: nothing seen`;
  return `${span}: at most ${percent(Math.max(...seen))} of the limit, in debt at ${held} of ${seen.length} points`;
}

function principalRow(one) {
  const throttled = one.throttled_connections;
  return row(one.id, h("a", { href: `${address({ bucket: one.id })}#why` }, text(one.who)), [
    ["", ...label(one.quota), ...(one.shadow ? [" ", tag("plain", "shadow")] : [])],
    ["num", used(one.used, one.unit)],
    ["num", amount(one.limit, one.unit)],
    ["", use(one)],
    ["num", ...delayed(one)],
    ["num", ...throttle(one)],
    ["", ...(one.rule ? label(one.rule) : [none()])],
    ["num", count(one.connections), ...(throttled ? [" ", soft(`(${count(throttled)} throttled)`)] : [])],
    ["", one.history ? curve(one.history) : none()],
  ]);
}

function eventRow(one) {
  const words = one.active ? "goes on" : "over";
  const state = one.shadow ? tag("plain", `shadow, ${words}`) : tag(one.active ? "bad" : "good", words);
  return row(`${one.began} ${one.quota} ${one.who}`, text(one.who), [
    ["num", h("time", { datetime: one.began }, clock(one.began))],
    ["", state],
    ["", ...label(`${one.quota} `), h("span", { class: "soft" }, ...label(one.rule))],
    ["num", took(one.lasted_s * 1000)],
    ["num", `${count(one.delays)} `, soft(`(${took(one.delayed_s * 1000)})`)],
    ["num", one.refused ? count(one.refused) : none()],
    ["text", text(one.why)],
  ]);
}

function connectionRow(one) {
  return row(one.peer, text(one.peer), [
    ["name", named(one.user)],
    ["name", named(one.client_id)],
    ["", one.state.replaceAll("_", " ")],
    ["num", one.throttled_by ? tag("bad", `${one.throttled_by} ${duration(one.for_ms)}`) : none()],
    ["num", count(one.in_flight)],
    ["num", count(one.requests)],
  ]);
}

function planRow(one) {
  const change = one.current > 0 ? `${fixed((one.proposed / one.current - 1) * 100, 0)} %` : "–";
  const signed = one.current > 0 && one.proposed >= one.current ? `+${change}` : change.replace("-", "−");
  return row(`${one.key} ${one.who}`, text(one.who), [
    ["", one.key],
    ["num", amount(one.current, one.unit)],
    ["num", amount(one.proposed, one.unit)],
    ["num", signed],
    ["", one.reason.replaceAll("_", " ")],
    ["", one.needs_review ? tag("warn", "review") : none()],
  ]);
}

function idsRow(one) {
  const waits = one.waiting ? tag("bad", `${count(one.waiting)} for ${took(one.delay_ms)}`) : none();
  const fresh = one.new === null ? [none()] : [`${count(one.new)} `, soft(`in ${took(one.new_span_s * 1000)}`)];
  return row(`${one.user} ${one.shadow ? "True" : "False"}`, named(one.user), [
    ["", ...(one.rule ? label(one.rule) : [none()]), ...(one.shadow ? [" ", tag("plain", "shadow")] : [])],
    ["num", amount(one.limit, "new producer ids per hour")],
    ["num", count(one.known)],
    ["num", ...fresh],
    ["num", fixed(one.tokens, 1)],
    ["num", waits],
    ["num", count(one.pairs)],
    ["num", count(one.forced)],
  ]);
}

const megabytes = (left) => (left === null ? soft("?") : `${fixed(left / 1e6, 1)} MB`);
const ends = (inS) => (inS === null ? soft("?") : took(inS * 1000));

function followerRow(one) {
  return row(String(one.follower), `broker ${one.follower}`, [
    ["num", one.limit === null ? none() : amount(one.limit, "bytes per second")],
    ["num", amount(one.rate, "bytes per second")],
    ["num", count(one.waiting)],
    ["num", count(one.lag_records)],
    ["num", megabytes(one.left_bytes)],
    ["num", one.waiting ? ends(one.ends_in_s) : none()],
  ]);
}

function replicaRow(one) {
  const left = one.left_bytes;
  return row(`${one.topic} ${one.partition} ${one.follower}`, text(one.topic), [
    ["num", count(one.partition)],
    ["num", count(one.follower)],
    ["num", count(one.lag_records)],
    ["", left === null ? none() : bar(one.passed_bytes / Math.max(1, one.passed_bytes + left))],
    ["num", megabytes(left)],
    ["num", amount(one.inflow, "bytes per second")],
    ["num", ends(one.ends_in_s)],
  ]);
}
