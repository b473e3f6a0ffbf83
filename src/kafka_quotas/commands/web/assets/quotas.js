// The page of quotas: asks the server for documents and shows them. All figures arrive as texts with their units.

import { SECONDS, ask, el, figure, fill, moment, notice, poll, svg, table, time } from "./elements.js";

const MINUTES = 60;
let paused = false;

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function who(row) {
  return row.group ?? ([row.user ? `user ${row.user}` : "", row.client_id ? `client-id ${row.client_id}` : ""].filter(Boolean).join(", ") || "any client");
}

function whose(row) {
  return row.entity ? [row.quota, el("small", {}, `set on ${row.entity}`)] : row.quota;
}

function used(row) {
  if (row.share === null) return el("span", { class: "soft" }, "no limit");
  const text = `${Math.round(row.share * 100)}%`;
  return [el("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: Math.min(row.share, 1), title: `${row.rate} of ${row.limit}`, "aria-hidden": "true" }), text];
}

function throttled(row) {
  if (!row.held) return el("span", { class: "soft" }, "no");
  const now = row.waiting === true ? "waits now" : row.waiting === false ? "not at this instant" : "throttled";
  return [el("span", { class: "badge bad" }, now), el("small", {}, row.minute)];
}

// Draws the hour as one bar per minute, higher the longer clients were held back in it, up to the whole minute.
function strip(row, nowMs, counts) {
  const wide = 4, high = 26;
  const bars = row.minutes_ms.map((ms, place) => {
    if (!ms) return null;
    const part = counts ? Math.max(0.15, Math.min(ms / 60000, 1)) : 1;
    const at = new Date(nowMs - (MINUTES - 1 - place) * 60000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const text = counts ? `${at}: ${+(ms / 1000).toPrecision(3)} s of throttle time` : `${at}: throttled`;
    return svg("rect", { class: "minute", x: place * wide, y: high - part * high, width: wide - 1, height: part * high }, svg("title", {}, text));
  }).filter(Boolean);
  const label = `throttled in ${bars.length} of the last ${MINUTES} minutes`;
  return svg("svg", { class: "strip", viewBox: `0 0 ${MINUTES * wide} ${high}`, role: "img", "aria-label": label },
    svg("rect", { class: "ground", width: MINUTES * wide, height: high }), ...bars);
}

function showOverview(found) {
  document.body.classList.remove("stale");
  const counts = found.sampled_from_ms === null;
  fill("origin", `${found.origin} \u00b7 ${found.store} \u00b7 as of ${time(found.at_ms)}`);
  fill("trouble", found.trouble ? notice(found.trouble.error, found.trouble.hint) : null, (found.health?.troubles ?? []).map((text) => notice(text)));
  const closest = found.rows.reduce((most, row) => (row.share !== null && !row.guaranteed && (most === null || row.share > most.share) ? row : most), null);
  const isOver = closest !== null && closest.share >= 0.9;
  const knows = !found.trouble;
  const unknown = (noun, note) => figure(noun, "not known", note, "");
  const connections = found.waiting.reduce((sum, row) => sum + row.connections, 0);
  fill("figures",
    figure("Waiting at this instant", found.health ? String(found.waiting.length) : "not known", found.health ? `${found.waiting.length === 1 ? "client" : "clients"}, on ${count(connections, "connection")}` : "only a daemon knows", found.waiting.length ? "bad" : ""),
    !knows ? unknown("Throttled lately", "no rates can be read") : figure("Throttled lately", String(found.held), `of ${count(found.buckets, "bucket")}, in the last minute`, found.held ? "bad" : found.buckets ? "good" : ""),
    !knows && !found.hour.length ? unknown("Throttled in the last hour", "no rates can be read") : figure("Throttled in the last hour", String(found.hour.length), found.hour.length === 1 ? "bucket" : "buckets", found.hour.length ? "watch" : ""),
    !knows ? unknown("Closest to its limit", "no rates can be read") : figure("Closest to its limit", closest ? `${Math.round(closest.share * 100)}%` : "nobody", closest ? who(closest) : "no bucket has a limit", isOver ? "watch" : ""),
  );
  fill("waiting", table([
    { title: "Client", kind: "who", cell: who },
    { title: "By which quota", cell: whose },
    { title: "Broker", cell: (row) => row.broker },
    { title: "Rate", kind: "numeric", cell: (row) => row.rate },
    { title: "Limit", kind: "numeric", cell: (row) => row.limit },
    { title: "Connections", kind: "numeric", cell: (row) => String(row.connections) },
    { title: "Time left", kind: "numeric", cell: (row) => row.remaining },
  ], found.waiting, { empty: !knows ? "Not known." : found.health ? "Nobody." : "Brokers' metrics don't say who waits at an instant.", caption: "Clients that wait now" }));
  fill("hour-note", !knows && !found.hour.length ? null : counts
    ? "A bar is a minute, its height the throttle time in it, up to 60 s; the present minute is on the right."
    : `A bar is a minute in which brokers reported a throttle time. This program has looked since ${moment(found.sampled_from_ms)}.`);
  fill("hour", table([
    { title: "Clients", kind: "who", cell: who },
    { title: "By which quota", cell: whose },
    { title: "Last 60 minutes", cell: (row) => strip(row, found.at_ms, counts) },
    ...(counts ? [
      { title: "Times", kind: "numeric", cell: (row) => row.times.toLocaleString("en") },
      { title: "In total", kind: "numeric", cell: (row) => row.total },
    ] : []),
  ], found.hour, { empty: knows ? "Nobody." : "Not known.", caption: "Clients throttled in the last hour" }));
  fill("rows", table([
    { title: "Clients", kind: "who", cell: who },
    { title: "Quota", cell: whose },
    { title: "Broker", cell: (row) => row.broker },
    { title: "Rate", kind: "numeric", cell: (row) => row.rate },
    { title: "Limit", kind: "numeric", cell: (row) => row.limit },
    { title: "Used", kind: "used", cell: used },
    { title: "Throttled", cell: throttled },
  ], found.rows, { empty: knows ? "No bucket with a limit was seen." : "Not known.", caption: "Rates and limits" }),
  found.buckets > found.rows.length ? el("p", { class: "state" }, `${found.buckets - found.rows.length} more, further from their limits, are not shown.`) : null,
  found.notes.map((note) => el("p", { class: "state" }, note)));
  showHealth(found.health);
}

function showHealth(health) {
  if (!health) {
    fill("daemon", el("p", { class: "empty" }, "No daemon answers here."));
    return;
  }
  fill("daemon",
    health.troubles.length ? null : el("p", { class: "good" }, "\u2713 no trouble"),
    el("dl", { class: "facts" }, health.facts.map((fact) => [el("dt", {}, fact.label), el("dd", {}, fact.text)])),
    table([
      { title: "Broker", cell: (row) => row.broker },
      { title: "Listens on", cell: (row) => row.listen },
      { title: "Leads to", cell: (row) => row.upstream },
      { title: "Connections", kind: "numeric", cell: (row) => String(row.connections) },
    ], health.listeners, { empty: "No listener.", caption: "Listeners" }));
}

const LEVELS = { group: "limit of the group", guaranteed: "guaranteed to it" };

function showEffective(found) {
  const name = `${found.user ? `user ${found.user}` : ""}${found.client_id ? `, client-id ${found.client_id}` : ", no client-id"}`;
  fill("effective", el("p", {}, `What applies to ${name}${found.group ? `, in group ${found.group}` : ""}:`), table([
    { title: "Quota", cell: (row) => row.quota },
    { title: "Limit", kind: "numeric", cell: (row) => row.limit },
    { title: "Set on", cell: (row) => (row.entity ? [row.entity, el("small", {}, LEVELS[row.level] ?? `level ${row.level}`)] : "") },
    { title: "Shared with", cell: (row) => row.shared_with },
    { title: "Uses now", cell: (row) => row.usage.map((each) => el("div", {},
      `broker ${each.broker}: ${each.rate}${each.share === null ? "" : `, ${Math.round(each.share * 100)}%`}`,
      each.held ? el("small", { class: "bad" }, `throttled ${each.minute}`) : null)) },
    { title: "Notes", cell: (row) => [
      row.ends_at ? el("div", {}, `${row.ends_at} would end the throttling`) : null,
      row.overridden.map((lost) => el("div", {}, `takes precedence over ${lost.entity} (${lost.limit})`)),
      row.warnings.map((text) => el("div", { class: "soft" }, text))] },
  ], found.answers, { empty: "No quota of any kind is in use.", caption: "Effective quotas" }));
}

const STATUS = {
  wins: ["wins", "good"], partly: ["only without client-id", "watch"], shadowed: ["shadowed", "watch"],
  ignored: ["ignored", "watch"], threshold: ["threshold", "soft"], "policy file": ["policy file", "soft"], group: ["all its clients", "good"],
};

function showQuotas(found) {
  fill("quotas-note", found.found > found.quotas.length
    ? `${found.quotas.length} of ${found.found} quotas; type a part of a name to find others.`
    : `${found.found} of ${found.total} quotas in ${found.store}`);
  fill("stored", table([
    { title: "Set on", kind: "who", cell: (row) => row.entity },
    { title: "Quota", cell: (row) => row.quota },
    { title: "Limit", kind: "numeric", cell: (row) => row.limit },
    { title: "Who gets it", cell: (row) => {
      const [text, mood] = STATUS[row.status];
      return [el("span", { class: `badge ${mood}` }, text), row.by ? el("small", {}, `${row.by} takes precedence`) : null];
    } },
  ], found.quotas, { empty: "No quota.", caption: "Quotas in force" }));
}

function change(each) {
  return el("li", {}, `${each.entity}: ${each.quota} ${each.old} \u2192 ${each.new}`);
}

function showChanges(found) {
  fill("changes-note", `From the journal ${found.journal}, which holds what kafka-quotas changed on this machine.`,
    found.other_stores.length ? ` It has changes of other stores too: ${found.other_stores.join(", ")}${found.more_stores ? `, and ${found.more_stores} more` : ""}.` : "");
  fill("entries", table([
    { title: "When", cell: (row) => moment(row.at_ms) },
    { title: "By", cell: (row) => row.by },
    { title: "What", cell: (row) => el("ul", { class: "changes" }, row.changes.map(change), row.more ? el("li", {}, `and ${row.more} more`) : null) },
    { title: "How and why", cell: (row) => [
      row.command, row.reverts ? el("small", {}, `reverts ${row.reverts}`) : null,
      row.reason ? el("small", {}, row.reason) : null,
      row.undo_at_ms ? el("small", {}, `to be undone ${moment(row.undo_at_ms)}`) : null,
      row.confirmed ? null : el("small", { class: "bad" }, "not confirmed by the store")] },
  ], found.entries, { empty: "No change of this store is in the journal.", caption: "Changes" }));
}

function failed(id) {
  return (error) => {
    if (id === "trouble") document.body.classList.add("stale");
    fill(id, notice(error.message, error.hint));
  };
}

async function askEffective() {
  const user = document.getElementById("user").value, client = document.getElementById("client_id").value;
  if (!user && !client) return;
  await ask("api/effective", { user, client_id: client }).then(showEffective, failed("effective"));
}

async function askQuotas() {
  await ask("api/quotas", { text: document.getElementById("text").value }).then(showQuotas, failed("stored"));
}

function pause() {
  paused = !paused;
  const button = document.getElementById("pause");
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Resume" : "Pause";
}

document.getElementById("pause").addEventListener("click", pause);
document.addEventListener("keydown", (event) => {
  if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey && event.target.tagName !== "INPUT") pause();
});
document.getElementById("who").addEventListener("submit", (event) => { event.preventDefault(); askEffective(); });
document.getElementById("find").addEventListener("submit", (event) => { event.preventDefault(); askQuotas(); });
let typing = 0;
document.getElementById("text").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(askQuotas, 250); });

poll("api/overview", SECONDS, showOverview, failed("trouble"), () => paused);
poll("api/changes", 5 * SECONDS, showChanges, failed("entries"), () => paused);
setInterval(() => { if (!document.hidden && !paused) { askQuotas(); askEffective(); } }, 5000 * SECONDS);
askQuotas();
