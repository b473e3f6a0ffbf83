// The live page of a load test: every client's rate against its bound. All figures arrive as texts with their units.

import { SECONDS, el, fill, notice, poll, svg } from "./elements.js";

const WIDE = 640, HIGH = 160, LEFT = 120, LOW = 24;

function chart(client, totalS) {
  const x = (s) => LEFT + (WIDE - LEFT) * (totalS ? s / totalS : 0);
  const y = (rate) => (HIGH - LOW) * (1 - (client.top ? Math.min(rate / client.top, 1) : 0)) + 8;
  const line = client.points.map((point) => `${x(point.at_s).toFixed(1)},${y(point.rate).toFixed(1)}`).join(" ");
  const parts = [
    svg("line", { class: "axis", x1: LEFT, x2: WIDE, y1: y(0), y2: y(0) }),
    client.bound_value !== null && client.bound_value > 0.8 * client.top ? "" :
      svg("text", { x: LEFT - 8, y: y(client.top) + 6, "text-anchor": "end" }, client.top_text),
    svg("text", { x: LEFT - 8, y: y(0), "text-anchor": "end" }, "0"),
    svg("text", { x: LEFT, y: HIGH }, "0 s"),
    svg("text", { x: WIDE, y: HIGH, "text-anchor": "end" }, `${totalS.toFixed(0)} s`),
  ];
  if (client.bound_value !== null) {
    parts.push(svg("line", { class: "bound", x1: LEFT, x2: WIDE, y1: y(client.bound_value), y2: y(client.bound_value) },
      svg("title", {}, `bound: ${client.bound}`)),
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
  const left = Math.max(found.total_s - found.elapsed_s, 0);
  fill("phase", found.total_s ? `${found.phase}, ${found.elapsed_s.toFixed(0)} of ${found.total_s.toFixed(0)} s, ${left.toFixed(0)} s left` : found.phase);
  document.getElementById("progress").value = found.total_s ? found.elapsed_s / found.total_s : 0;
  fill("steps", found.steps.map((step) => el("li", {}, step)));
  fill("charts", found.clients.map((client) => el("figure", {},
    el("figcaption", {}, el("strong", {}, client.client),
      ` ${client.does}s ${client.rate}${client.bound ? `, ${Math.round(client.share * 100)}% of its bound of ${client.bound}` : ", no bound"}`,
      client.throttled ? `; throttled ${client.throttled}` : "",
      client.waiting ? `; ${client.waiting.toLocaleString("en")} without an answer yet` : ""),
    chart(client, found.total_s))));
  fill("left-out", found.left_out ? `${found.left_out} more clients are not shown.` : "");
}

poll("api/run", SECONDS / 2, show, () => {
  document.body.classList.add("stale");
  fill("trouble", notice("The load test has ended: its result is where it was started.", "", "plain"));
});
