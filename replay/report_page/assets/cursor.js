const tip = document.getElementById("tip");
const followers = [];

/** All plots on the run's axis show the same place; the tip speaks for the one that is pointed at. */
function follow(host, spec) {
  followers.push(host);
  const last = content.levels.next_seq.length - 1;
  let border = null;
  const go = (wanted, x, y) => {
    border = Math.min(Math.max(wanted, 0), last);
    moveCursor(border);
    if (spec.at) spec.at(border, y);
    showTip(whenOf(border), spec.rows(border, y), x, y);
  };
  host.addEventListener("pointermove", (event) => {
    const { left, right } = host.frame;
    const x = event.clientX - host.getBoundingClientRect().left;
    const place = ((x - left) / (right - left)) * axis.columns;
    go(spec.columns ? Math.floor(place) + 1 : Math.round(place), event.clientX, event.clientY);
  });
  host.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const box = host.getBoundingClientRect();
    const next = (border === null ? last : border) + step * (event.shiftKey ? 10 : 1);
    go(next, box.left + host.frame.x(Math.min(Math.max(next, 0), last)), box.top + 40);
  });
  for (const left of ["pointerleave", "blur", "pointercancel"]) host.addEventListener(left, () => leave(spec));
}

function moveCursor(border) {
  for (const { frame } of followers) {
    if (!frame) continue;
    const x = frame.x(border === null ? 0 : border);
    frame.line.setAttribute("visibility", border === null ? "hidden" : "visible");
    frame.line.setAttribute("x1", x);
    frame.line.setAttribute("x2", x);
  }
}

function leave(spec) {
  tip.hidden = true;
  moveCursor(null);
  if (spec.leave) spec.leave();
}

/** rows: [tone or null, label, value]. */
function showTip(head, rows, x, y) {
  const items = rows.map(([tone, label, value]) => element("li", {}, ...(tone ? [swatch(tone)] : []), element("span", {}, label), element("b", {}, value)));
  tip.replaceChildren(element("div", { class: "when" }, head), element("ul", {}, ...items));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const toLeft = x + 16 + width > window.innerWidth - 8;
  const left = toLeft ? Math.max(8, x - 16 - width) : x + 16;
  const top = Math.min(Math.max(8, y - height - 12), window.innerHeight - height - 8);
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}
