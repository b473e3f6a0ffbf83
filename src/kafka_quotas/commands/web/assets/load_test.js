// The live page of a load test: every client's rate against its quota. All figures arrive as texts with their units.

import { SECONDS, el, fill, notice, poll, svg } from "./elements.js";

const WIDE = 640, HIGH = 160, LEFT = 120, LOW = 24;

function chart(client, totalS) {
  const x = (s) => LEFT + (WIDE - LEFT) * (totalS ? s / totalS : 0);
  const y = (rate) => (HIGH - LOW) * (1 - (client.top ? rate / client.top : 0)) + 8;
  const line = client.points.map((point) => `${x(point.at_s).toFixed(1)},${y(point.rate).toFixed(1)}`).join(" ");
  const parts = [
    svg("line", { class: "axis", x1: LEFT, x2: WIDE, y1: y(0), y2: y(0) }),
    client.bound_value !== null && client.bound_value > 0.8 * client.top ? "" :
      svg("text", { x: LEFT - 8, y: y(client.top) + 6, "text-anchor": "end" }, client.top_text),
    client.bound_value !== null && client.bound_value < 0.12 * client.top ? "" :
      svg("text", { x: LEFT - 8, y: y(0), "text-anchor": "end" }, "0"),
    svg("text", { x: LEFT, y: HIGH }, "0 s"),
    svg("text", { x: WIDE, y: HIGH, "text-anchor": "end" }, `${totalS.toFixed(0)} s`),
  ];
  if (client.bound_value !== null) {
    parts.push(svg("line", { class: "bound", x1: LEFT, x2: WIDE, y1: y(client.bound_value), y2: y(client.bound_value) },
      svg("title", {}, `quota: ${client.bound}`)),
      svg("text", { class: "bound-text", x: LEFT - 8, y: y(client.bound_value) + 4, "text-anchor": "end" }, client.bound));
  }
  parts.push(svg("polyline", { class: "rate", points: line }));
  for (const point of client.points) {
    parts.push(svg("circle", { class: "point", cx: x(point.at_s), cy: y(point.rate), r: 4 }, svg("title", {}, point.text)));
  }
  const label = `${client.client}: ${client.rate}${client.bound ? ` of ${client.bound}` : ""}`;
  return svg("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH + 4}`, role: "img", "aria-label": label }, ...parts);
}

function show(found) {
  document.body.classList.remove("stale");
  document.title = `${found.title}: ${found.phase}`;
  fill("trouble");
  fill("title", found.title);
  const left = Math.max(found.most_s - found.done_s, 0);
  fill("phase", found.most_s ? `${found.phase}, ${found.done_s.toFixed(0)} of ${found.most_s.toFixed(0)} s, ${left.toFixed(0)} s left` : found.phase);
  document.getElementById("progress").value = found.most_s ? found.done_s / found.most_s : 0;
  fill("steps", found.steps.map((step) => el("li", {}, step)));
  fill("charts", found.clients.map((client) => el("figure", {},
    el("figcaption", {}, el("strong", {}, client.client),
      ` ${client.does}s ${client.rate}${client.bound ? `, ${Math.round(client.share * 100)}% of its quota of ${client.bound}` : ", no quota"}`,
      client.throttled ? `; throttled ${client.throttled}` : "",
      client.waiting ? `; ${client.waiting.toLocaleString("en")} without an answer yet` : ""),
    chart(client, found.total_s))));
  fill("left-out", found.left_out ? `${found.left_out} more clients are not shown.` : "");
}

poll("api/run", SECONDS / 2, show, () => {
  document.body.classList.add("stale");
  fill("trouble", notice("The load test has ended: its result is where it was started.", "", "plain"));
});
