"use strict";
// Keeps the page current from the JSON API; follows status_cells.js in one script.

const POLL_MS = Number(document.body.dataset.pollMs), SLOWEST_MS = 15000;
const DEFAULTS = {
  offset: 0, search: "", throttled: false, quota: "", sort: "throttle", order: "desc",
  connections_offset: 0, bucket: "",
};

// Tables --------------------------------------------------------------------------------------------------

// What is the same stays the same element, so that focus, selection and scrolling stay where they are.
function fill(id, rows) {
  const table = $(id), body = table.tBodies[0], active = document.activeElement;
  if (!rows.length) {
    const columns = table.tHead.rows[0].cells.length;
    rows = [h("tr", { "data-key": "" }, h("td", { class: "empty", colspan: columns }, "Nothing to show."))];
  }
  const old = new Map([...body.rows].map((one) => [one.dataset.key, one]));
  rows.forEach((fresh, number) => {
    const key = fresh.dataset.key || "";
    let kept = old.get(key);
    if (kept && kept.cells.length === fresh.cells.length) {
      old.delete(key);
      [...fresh.cells].forEach((cell, at) => {
        if (kept.cells[at].innerHTML !== cell.innerHTML) kept.cells[at].replaceChildren(...cell.childNodes);
      });
    } else {
      kept = fresh;
    }
    if (body.rows[number] !== kept) body.insertBefore(kept, body.rows[number] || null);
  });
  old.forEach((gone) => gone.remove());
  while (body.rows.length > rows.length) body.rows[rows.length].remove();
  if (active && active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true });
}

function caption(listing, what) {
  if (!listing.matching) return `No ${what}`;
  const first = listing.offset + 1, last = listing.offset + listing.rows.length;
  const shown = listing.rows.length ? `${count(first)} to ${count(last)}` : "None";
  const rest = listing.listed === listing.matching ? "" : `; the first ${count(listing.listed)} can be seen`;
  return `${shown} of ${count(listing.matching)} ${what}${rest}`;
}

function put(place, words) {
  if (place.textContent !== words) place.textContent = words;
}

function list(id, answer, what, rowOf) {
  put($(`${id}-caption`), caption(answer, what));
  fill(id, answer.rows.map(rowOf));
}

function pages(id, listing, key) {
  const ways = [
    ["Previous", Math.max(0, listing.offset - listing.limit), listing.offset > 0],
    ["Next", listing.offset + listing.limit, listing.offset + listing.limit < listing.listed],
  ].filter((way) => way[2]);
  const links = ways.map(([name, offset]) => h("a", { href: address({ [key]: offset }), "data-offset": offset }, name));
  const nav = $(id);
  if (nav.innerHTML !== links.map((link) => link.outerHTML).join("")) nav.replaceChildren(...links);
}

// What a click on a column's head asks for: the other way round, or first as it is usual for such a column.
function orderOf(head) {
  if (asked.sort !== head.dataset.sort) return head.dataset.first;
  return asked.order === "desc" ? "asc" : "desc";
}

function heads() {
  for (const head of $("buckets").tHead.rows[0].cells) {
    const order = head.dataset.sort;
    if (!order) continue;
    const isSorted = asked.sort === order;
    if (isSorted) head.setAttribute("aria-sort", asked.order === "desc" ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
    const other = orderOf(head);
    head.firstElementChild.setAttribute("href", address({ sort: order, order: other, offset: 0 }));
  }
}

// Sections ------------------------------------------------------------------------------------------------

function summary(one) {
  const state = one.ready
    ? [tag("good", "ready")]
    : [tag("warn", "not ready"), " ", text(one.not_ready.join("; "))];
  if (one.not_in_force.length) state.push(" ", tag("warn", "not in force"), " ", text(one.not_in_force.join("; ")));
  const holder = h("p", null, ...state);
  if ($("state").innerHTML !== holder.innerHTML) $("state").replaceChildren(...state);
  put($("at"), clock(one.at));
  const tiles = [
    ["Delayed", count(one.delayed_buckets_1m),
      `of ${count(one.active_buckets)} active buckets, in the last minute; ${count(one.throttled_buckets)} now`],
    ["Buckets", count(one.buckets), "limits in use, one a bucket"],
    ["Connections", count(one.connections), `${count(one.throttled_connections)} throttled`],
    ["Pacing", one.pacing, "how delays are made"],
  ].map(([name, value, more]) => h("div", null, h("dt", null, name), h("dd", null, value, h("small", null, more))));
  const fresh = h("dl", null, ...tiles);
  if ($("tiles").innerHTML !== fresh.innerHTML) $("tiles").replaceChildren(...tiles);
  document.title = `${one.delayed_buckets_1m ? `(${count(one.delayed_buckets_1m)}) ` : ""}Sluice status`;
}

function shownTable() {
  const titles = [...$("clients").tHead.rows[0].cells].map((cell) => cell.cloneNode(true));
  return h("div", { class: "scroll", role: "region", "aria-labelledby": "shown-caption", tabindex: "0" },
    h("table", { id: "shown" }, h("caption", { id: "shown-caption" }, "Its connections, at most 20"),
      h("thead", null, h("tr", null, ...titles)), h("tbody")));
}

function why(one) {
  const section = $("why");
  if (!one) {
    section.hidden = true;
    section.replaceChildren();
    return;
  }
  if (section.dataset.bucket !== one.id || !$("why-title")) {
    section.dataset.bucket = one.id;
    section.replaceChildren(
      h("h2", { id: "why-title", tabindex: "-1" }, "Why: ", text(one.who), `, ${one.key}`),
      h("div", { class: "drawn" }),
      h("ul", { class: "reasons" }),
      shownTable(),
      h("p", { class: "pages" }, h("a", { id: "close", href: address({ bucket: "" }) }, "Close")));
  }
  section.hidden = false;
  const place = section.querySelector(".drawn");
  if (place && one.history) place.replaceChildren(...drawn(one.history));
  section.querySelector(".reasons").replaceChildren(...one.why.map((line) => h("li", null, text(line))));
  fill("shown", one.shown.map(connectionRow));
}

function followersTold(one) {
  const limit = one.throttle === null ? "no limit" : `limit ${amount(one.throttle, "bytes per second")}`;
  const moved = one.move_ratio === null ? "" : ` · ${fixed(one.move_ratio * 100, 1)} % of all partitions are being moved`;
  return `Leader ${one.leader} · ${limit} · ${amount(one.rate, "bytes per second")} now${moved}`;
}

// Whether a listener has followers is settled when the proxy starts: without, there are no tables to fill.
function replication(one) {
  if (!$("replicas")) return;
  put($("followers-caption"), followersTold(one));
  fill("followers", one.followers.map(followerRow));
  list("replicas", one, "partitions", replicaRow);
}

// A plan comes once a night: what the server made of the last one stays until there is another.
let planShown = "";

function plan(one) {
  const name = JSON.stringify([one.state, one.name, one.date, one.problem]);
  const isFirst = !planShown;
  if (name === planShown) return;
  planShown = name;
  if (one.state === "shown" && $("changes")) {
    const facts = [
      printable(one.date), printable(one.name), count(one.entities), count(one.changes), count(one.reviews),
      count(one.log_files), count(one.damaged_files),
    ];
    [...document.querySelectorAll("#plan dd")].forEach((place, number) => put(place, facts[number]));
    fill("changes", one.rows.map(planRow));
  } else if (!isFirst) {
    location.reload();
  }
}

// Asking --------------------------------------------------------------------------------------------------

const asked = { ...DEFAULTS };
for (const [key, value] of new URLSearchParams(location.search)) {
  if (!(key in DEFAULTS)) continue;
  const kind = typeof DEFAULTS[key];
  asked[key] = kind === "number" ? Number(value) : kind === "boolean" ? value === "true" : value;
}

function query(values) {
  const said = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value !== DEFAULTS[key]) said.set(key, value);
  return said.toString();
}

function address(changes) {
  const said = query({ ...asked, ...changes });
  return said ? `status?${said}` : "status";
}

async function get(path, values) {
  const said = query(values || {});
  const answer = await fetch(`api/v1/${path}${said ? `?${said}` : ""}`, {
    headers: { accept: "application/json" }, cache: "no-store", credentials: "same-origin",
  });
  if (answer.status === 404) return null;
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Error(problem.detail || `HTTP status ${answer.status}`);
  }
  return answer.json();
}

let timer = 0, waitMs = POLL_MS, paused = false, round = 0, lost = false;

// Said to screen readers; what is wrong is shown as well.
function tell(words, isWrong) {
  $("told").classList.toggle("unseen", !isWrong);
  put($("told"), words);
}

async function refresh(told) {
  clearTimeout(timer);
  const mine = (round += 1), { search } = asked;
  const one = { search };
  try {
    const answers = await Promise.all([
      get("summary"),
      get("principals", {
        search, throttled: asked.throttled, quota: asked.quota, sort: asked.sort, order: asked.order,
        offset: asked.offset, history: true,
      }),
      asked.bucket ? get(`principals/${asked.bucket}`) : null,
      get("events", one),
      get("connections", { search, throttled: asked.throttled, offset: asked.connections_offset }),
      get("producer-ids", one),
      get("replication", one),
      get("plan"),
    ]);
    if (mine !== round) return;
    const [whole, principals, detail, events, connections, ids, replicas, planned] = answers;
    summary(whole);
    list("buckets", principals, "buckets", principalRow);
    pages("buckets-pages", principals, "offset");
    heads();
    why(detail);
    list("events", events, "episodes", eventRow);
    list("clients", connections, "connections", connectionRow);
    pages("clients-pages", connections, "connections_offset");
    list("ids", ids, "principals", idsRow);
    replication(replicas);
    plan(planned);
    waitMs = POLL_MS;
    if (told) tell(told(principals, detail));
    else if (lost) tell("The proxy answers again.");
    lost = false;
  } catch (error) {
    if (mine !== round) return;
    waitMs = Math.min(SLOWEST_MS, waitMs * 2);
    if (!lost) tell(`No answer since ${$("at").textContent}: ${error.message}. It is asked again.`, true);
    lost = true;
  }
  wait();
}

function wait() {
  clearTimeout(timer);
  if (!paused && !document.hidden) timer = setTimeout(refresh, waitMs);
}

function ask(changes, told) {
  Object.assign(asked, changes);
  history.replaceState(null, "", address({}));
  return refresh(told);
}

// What people do ------------------------------------------------------------------------------------------

const found = (principals) => `${caption(principals, "buckets")}.`;

function filter() {
  return ask({
    search: $("search").value.trim(), quota: $("quota").value, throttled: $("throttled").checked,
    offset: 0, connections_offset: 0,
  }, found);
}

function isPlain(event) {
  return event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || !isPlain(event)) return;
  const head = link.closest("th[data-sort]"), way = link.closest("nav.pages");
  const line = link.closest("#buckets tbody tr");
  if (head) {
    const order = orderOf(head);
    ask({ sort: head.dataset.sort, order, offset: 0 },
      () => `Sorted by ${head.textContent}, ${order === "desc" ? "highest" : "lowest"} first.`);
  } else if (way) {
    const key = way.id === "buckets-pages" ? "offset" : "connections_offset";
    ask({ [key]: Number(link.dataset.offset) }, () => `${link.textContent} page.`);
  } else if (line) {
    ask({ bucket: line.dataset.key }, (_, detail) => (detail ? "" : "This bucket is not in use any more."))
      .then(() => $("why-title") && $("why-title").focus());
  } else if (link.id === "close") {
    const key = asked.bucket;
    ask({ bucket: "" }).then(() => {
      const back = document.querySelector(`#buckets tr[data-key="${CSS.escape(key)}"] a`);
      (back || $("principals-title").closest("section").querySelector(".scroll")).focus();
    });
  } else if (link.id === "clear") {
    $("search").value = "";
    $("quota").value = "";
    $("throttled").checked = false;
    filter();
  } else {
    return;
  }
  event.preventDefault();
});

let typed = 0;
$("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  filter();
});
$("search").addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(filter, 400);
});
$("quota").addEventListener("change", filter);
$("throttled").addEventListener("change", filter);

const button = $("pause");
button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  tell(paused ? "Updates are paused." : "");
  if (paused) wait();
  else refresh();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) wait();
  else if (!paused) refresh();
});
wait();
